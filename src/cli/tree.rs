//! The value of `--tree`.

use std::{
    fmt::{self, Display},
    str::FromStr,
};

use serde::{Serialize, Serializer};

/// Sizes of dynamic trees, written `TOPKxDEPTHxNODES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSize {
    /// Children of a node that are looked at, and nodes of a level that are followed.
    pub topk: u8,
    /// Most levels below the anchor.
    pub depth: u8,
    /// Most nodes, the anchor not counted.
    pub nodes: u16,
}

impl FromStr for TreeSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<Option<u16>> = text.split('x').map(|part| part.parse().ok()).collect();
        let small = |n: u16| u8::try_from(n).ok().filter(|n| (1..=64).contains(n));
        if let [Some(topk), Some(depth), Some(nodes @ 1..=1024)] = numbers[..]
            && let (Some(topk), Some(depth)) = (small(topk), small(depth))
        {
            return Ok(Self { topk, depth, nodes });
        }
        let accepted = "TOPKxDEPTHxNODES is accepted, such as 4x5x24: 1..=64, 1..=64 and 1..=1024";
        Err(accepted.to_owned())
    }
}

impl Display for TreeSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.topk, self.depth, self.nodes)
    }
}

impl Serialize for TreeSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_three_numbers_in_their_ranges() {
        for good in ["4x5x24", "1x1x1", "64x64x1024"] {
            assert_eq!(good.parse::<TreeSize>().unwrap().to_string(), good);
        }
        let wrong = "|4|4x5|4x5x24x1|0x5x24|4x0x24|4x5x0|65x5x24|4x65x24|4x5x1025|4X5X24|4x-5x24";
        for wrong in wrong.split('|').chain(["4x5x 24", "4x5x70000"]) {
            let error = wrong.parse::<TreeSize>().expect_err(wrong);
            assert!(error.contains("TOPKxDEPTHxNODES"), "{error}");
        }
    }
}
