//! What a network can be fed.

use candle_core::Device;

use super::rows::Rows;
use crate::{
    cache::Txn,
    error::{ErrorKind, Result},
};

/// The sizes of a network that a pass is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'d> {
    pub(crate) vocab: usize,
    pub(crate) layers: usize,
    /// Floats of a key of a token.
    pub(crate) width: usize,
    /// Where keys and values lie; `None` for host memory.
    pub(crate) device: Option<&'d Device>,
}

impl Limits<'_> {
    /// Refuses tokens, taps and caches that do not exist for the network.
    pub(crate) fn check(&self, rows: &Rows, txn: &Txn<'_>, taps: &[usize]) -> Result<()> {
        if let Some(token) = rows.tokens().iter().find(|t| **t as usize >= self.vocab) {
            let vocab = self.vocab;
            return Err(
                ErrorKind::Rows(format!("token {token}, accepted are ids below {vocab}")).into(),
            );
        }
        if txn.width() != self.width {
            let (found, width) = (txn.width(), self.width);
            return Err(ErrorKind::Cache(format!(
                "keys of {found} values, accepted are the network's {width}"
            ))
            .into());
        }
        let same = match (self.device, txn.device()) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => ours.same_device(theirs),
            _ => false,
        };
        if !same {
            let place = |device: Option<&Device>| match device {
                None => "in host memory".to_owned(),
                Some(device) => format!("on {:?}", device.location()),
            };
            return Err(ErrorKind::Cache(format!(
                "keys {}, accepted are the network's {}",
                place(txn.device()),
                place(self.device)
            ))
            .into());
        }
        if let Some(tap) = taps.iter().find(|tap| **tap > self.layers) {
            let layers = self.layers;
            return Err(ErrorKind::Setting {
                name: "tap",
                value: tap.to_string(),
                accepted: format!("accepted are 0 (embeddings) to {layers} (after the last layer)"),
            }
            .into());
        }
        Ok(())
    }
}
