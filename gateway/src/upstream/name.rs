//! Where a replica's host is: an address, or a name that is looked up again for new connections.
//!
//! An answer of the resolver is kept for some seconds, so that a burst of connections costs one lookup, and is thrown
//! away when nobody answers there. Chooses the order in which addresses are tried; connects nowhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::time::Instant;
use tokio::sync::Mutex;

/// How long an answer of the resolver is good.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// The addresses of one name, in the order in which they are tried; at least one.
pub(super) type Addresses = Arc<[SocketAddr]>;

/// A host and a port.
#[derive(Debug)]
pub(super) struct Name {
    host: String,
    port: u16,
    known: Known,
}

#[derive(Debug)]
enum Known {
    /// The host is an address.
    Always(Addresses),
    /// The last answer and when it came. The lock is held over a lookup: one is enough for all who ask.
    Since(Mutex<Option<(Instant, Addresses)>>),
}

impl Name {
    /// `host` is a name or an address, IPv6 without brackets.
    pub(super) fn new(host: &str, port: u16) -> Self {
        let known = match host.parse::<IpAddr>() {
            Ok(address) => Known::Always(Arc::from([SocketAddr::new(address, port)])),
            Err(_) => Known::Since(Mutex::default()),
        };
        Self { host: host.to_owned(), port, known }
    }

    /// Its addresses at `now`.
    ///
    /// # Errors
    /// The resolver's, and one for a name without addresses.
    pub(super) async fn addresses(&self, now: Instant) -> io::Result<Addresses> {
        let last = match &self.known {
            Known::Always(addresses) => return Ok(Arc::clone(addresses)),
            Known::Since(last) => last,
        };
        let mut last = last.lock().await;
        if let Some((since, addresses)) = &*last
            && now.since(*since) < GOOD_FOR
        {
            return Ok(Arc::clone(addresses));
        }
        *last = None;
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
        let addresses: Addresses = by_turns(found).into();
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        *last = Some((now, Arc::clone(&addresses)));
        Ok(addresses)
    }

    /// Nobody answers at `addresses`: the next connection asks the resolver again.
    pub(super) async fn forget(&self, addresses: &Addresses) {
        if let Known::Since(last) = &self.known {
            let mut last = last.lock().await;
            if last.as_ref().is_some_and(|(_, kept)| Arc::ptr_eq(kept, addresses)) {
                *last = None;
            }
        }
    }
}

/// The addresses in the resolver's order, each once, with IPv6 and IPv4 by turns: a family that leads nowhere costs one
/// attempt and not all (RFC 8305, 4).
fn by_turns(found: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut order: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !order.contains(&address) {
            order.push(address);
        }
    }
    let Some(first) = order.first().copied() else { return order };
    let (same, other): (Vec<_>, Vec<_>) =
        order.into_iter().partition(|address| address.is_ipv4() == first.is_ipv4());
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut turns = Vec::with_capacity(same.len() + other.len());
    loop {
        let pair = [same.next(), other.next()];
        if pair == [None, None] {
            return turns;
        }
        turns.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns_in_the_order_of_the_resolver() {
        for (found, order) in [
            (&["[::1]:1", "[::2]:1", "10.0.0.1:1"][..], &["[::1]:1", "10.0.0.1:1", "[::2]:1"][..]),
            (&["10.0.0.2:1", "10.0.0.1:1", "10.0.0.2:1"], &["10.0.0.2:1", "10.0.0.1:1"]),
            (&["10.0.0.1:1", "[::1]:1", "10.0.0.2:1"], &["10.0.0.1:1", "[::1]:1", "10.0.0.2:1"]),
            (&[], &[]),
        ] {
            assert_eq!(by_turns(sockets(found)), sockets(order));
        }
    }

    #[tokio::test]
    async fn an_address_needs_no_resolver() {
        for (host, address) in [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80")] {
            let name = Name::new(host, 80);
            assert_eq!(*name.addresses(Instant::ZERO).await.unwrap(), sockets(&[address]));
        }
    }

    #[tokio::test]
    async fn an_answer_is_good_for_some_seconds_or_until_it_leads_nowhere() {
        let name = Name::new("localhost", 80);
        let at = async |now| name.addresses(Instant::ZERO + now).await.unwrap();
        let first = at(Duration::ZERO).await;
        assert!(Arc::ptr_eq(&first, &at(GOOD_FOR / 2).await), "the same answer");
        name.forget(&first).await;
        let second = at(GOOD_FOR / 2).await;
        assert!(!Arc::ptr_eq(&first, &second), "asked again after a failure");
        name.forget(&first).await;
        assert!(Arc::ptr_eq(&second, &at(GOOD_FOR).await), "an old failure forgets nothing new");
        assert!(!Arc::ptr_eq(&second, &at(GOOD_FOR * 2).await), "asked again after some seconds");
    }

    #[tokio::test]
    async fn an_unknown_name_is_an_error() {
        Name::new("no-such-host.invalid", 80).addresses(Instant::ZERO).await.expect_err("no such name");
    }
}
