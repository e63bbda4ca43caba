//! What a request is called, in its answer, at its replica and in the log: as its client calls it, else by a name made
//! here. Never told apart by it: clients may call two requests alike.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};

use smallvec::SmallVec;

use crate::http1::fields::{Fields, Name, text};
use crate::http1::write;

/// Longest id that is taken from a client, in bytes.
const ID_MAX: usize = 128;
/// Room for one that is made here.
const ROOM: usize = 40;

/// 1 to 128 bytes of printable ASCII.
#[derive(Clone, Debug)]
pub struct RequestId(SmallVec<[u8; ROOM]>);

impl AsRef<[u8]> for RequestId {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
impl From<&'static str> for RequestId {
    fn from(text: &'static str) -> Self {
        Self(SmallVec::from_slice(text.as_bytes()))
    }
}

/// Makes ids for requests that bring none: a random prefix per core and a counter.
#[derive(Debug)]
pub struct RequestIds {
    /// What ids of this core begin with.
    prefix: RequestId,
    next: Cell<u64>,
}

impl Default for RequestIds {
    fn default() -> Self {
        let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let mut prefix = SmallVec::from_slice(b"req-");
        prefix.extend_from_slice(write::hex(&mut [0; 16], random, 16));
        prefix.push(b'-');
        Self { prefix: RequestId(prefix), next: Cell::new(0) }
    }
}

impl RequestIds {
    /// The id that `fields` bring, or a new one.
    pub fn of(&self, fields: &Fields) -> RequestId {
        let given = fields.get(Name::RequestId);
        if let Some(given) = given.filter(|id| (1..=ID_MAX).contains(&id.len()) && text(id).is_some()) {
            return RequestId(SmallVec::from_slice(given));
        }
        let n = self.next.get();
        self.next.set(n.wrapping_add(1));
        let mut id = SmallVec::from_slice(self.prefix.as_ref());
        id.extend_from_slice(write::hex(&mut [0; 16], n, 1));
        RequestId(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h5_an_id_of_the_clients_is_kept_where_it_can_be_shown() {
        let ids = RequestIds::default();
        let of = |given: &str| {
            let mut fields = Fields::default();
            fields.set(Name::RequestId, given);
            String::from_utf8(ids.of(&fields).0.to_vec()).expect("text")
        };
        for good in ["a", "tr-1 b\t", &"x".repeat(128)] {
            assert_eq!(of(good), good);
        }
        let mut made: Vec<_> = ["", "h\u{f6}her", &"x".repeat(129)].map(of).into();
        made.push(String::from_utf8(ids.of(&Fields::default()).0.to_vec()).expect("text"));
        assert!(made.iter().all(|id| id.starts_with("req-") && id.len() == 22), "{made:?}");
        made.dedup();
        assert_eq!(made.len(), 4);
    }
}
