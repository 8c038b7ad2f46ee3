//! All running sequences in one step, whatever their lengths.

use super::{BucketedSeqs, BucketingManager, FcfsBacker, NonZeroUsize, Sequence};

/// For pipelines that hold keys and values by sequence: lengths need not agree. At most so many run,
/// the oldest first; those that want logits never run with those that want tokens.
pub(super) struct RaggedBucketingManager(pub(super) NonZeroUsize);

impl<Backer: FcfsBacker> BucketingManager<Backer> for RaggedBucketingManager {
    fn bucket_and_waitlist_seqs_waiting(
        &mut self,
        mut running: Vec<Sequence>,
        mut waiting: Backer,
        _discrete: bool,
    ) -> BucketedSeqs<Backer> {
        running.sort_by_key(|seq| *seq.id());
        let raw = running.first().is_some_and(|seq| seq.return_raw_logits);
        let mut kept = Vec::with_capacity(running.len());
        for seq in running {
            if kept.len() < self.0.get() && seq.return_raw_logits == raw {
                kept.push(seq.reset_urgency());
            } else {
                waiting.add(seq.add_urgency());
            }
        }
        BucketedSeqs {
            running: kept,
            waiting,
        }
    }
}
