//! Where a replica's host is: an address, or a name that is looked up again for new connections.
//!
//! An answer of the resolver is kept for some seconds, so that a burst of connections costs one lookup, and is thrown
//! away when nobody answers there. A resolver that fails or hangs takes away nobody who answers: the last answer stays
//! good meanwhile (R5). Chooses the order in which addresses are tried; connects nowhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_shared::time::Instant;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// How long an answer of the resolver is good.
const GOOD_FOR: Duration = Duration::from_secs(5);
/// How long it is good while the resolver gives no other, which may be its own fault; beyond, the name is gone.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// How long a lookup is waited for where the last answer is at hand: shorter than a connection may take.
const PATIENCE: Duration = Duration::from_millis(250);

/// The addresses of one name, in the order in which they are tried; at least one.
pub(super) type Addresses = Arc<[SocketAddr]>;

/// A lookup on its way.
type Running = JoinHandle<io::Result<Vec<SocketAddr>>>;

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
    /// What the resolver said. The lock is held over a lookup: one is enough for all who ask.
    Since(Mutex<Answers>),
}

#[derive(Debug, Default)]
struct Answers {
    last: Option<Last>,
    /// One that was not waited for to its end: the next who asks takes it up, so that a resolver that hangs holds one thread.
    running: Option<Running>,
}

/// The last answer.
#[derive(Debug)]
struct Last {
    came: Instant,
    /// When it was last known that there is no newer one.
    checked: Instant,
    /// That it is kept was told.
    told: bool,
    addresses: Addresses,
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
    /// The resolver's, and one for a name without addresses; neither while an answer is kept.
    pub(super) async fn addresses(&self, now: Instant) -> io::Result<Addresses> {
        let look = || {
            let (host, port) = (self.host.clone(), self.port);
            tokio::spawn(async move { Ok(by_turns(tokio::net::lookup_host((host, port)).await?)) })
        };
        match &self.known {
            Known::Always(addresses) => Ok(Arc::clone(addresses)),
            Known::Since(answers) => answers.lock().await.at(&self.host, now, look).await,
        }
    }

    /// Nobody answers at `addresses`: the next connection asks the resolver again.
    pub(super) async fn forget(&self, addresses: &Addresses) {
        if let Known::Since(answers) = &self.known {
            let mut answers = answers.lock().await;
            if answers.last.as_ref().is_some_and(|last| Arc::ptr_eq(&last.addresses, addresses)) {
                answers.last = None;
            }
        }
    }
}

impl Answers {
    async fn at(
        &mut self,
        host: &str,
        now: Instant,
        look: impl FnOnce() -> Running,
    ) -> io::Result<Addresses> {
        if let Some(last) = &self.last
            && now.since(last.checked) < GOOD_FOR
        {
            return Ok(Arc::clone(&last.addresses));
        }
        self.last.take_if(|last| now.since(last.came) >= KEPT_FOR);
        let found = match self.found(look).await {
            Ok(found) if !found.is_empty() => found,
            Ok(_) => return self.kept(host, now, io::Error::other("the name has no address")),
            Err(error) => return self.kept(host, now, error),
        };
        let addresses: Addresses = found.into();
        let kept = Arc::clone(&addresses);
        self.last = Some(Last { came: now, checked: now, told: false, addresses: kept });
        Ok(addresses)
    }

    /// What the resolver says; waits for that only as long as need be. Dropped meanwhile, the lookup goes on.
    async fn found(&mut self, look: impl FnOnce() -> Running) -> io::Result<Vec<SocketAddr>> {
        let running = self.running.get_or_insert_with(look);
        let found = match self.last {
            None => running.await,
            Some(_) => match tokio::time::timeout(PATIENCE, running).await {
                Ok(found) => found,
                Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer yet")),
            },
        };
        self.running = None;
        found.map_err(io::Error::other)?
    }

    /// The last answer, where there is one.
    fn kept(&mut self, host: &str, now: Instant, error: io::Error) -> io::Result<Addresses> {
        let Some(last) = &mut self.last else { return Err(error) };
        last.checked = now;
        if !std::mem::replace(&mut last.told, true) {
            tracing::warn!("{host} cannot be looked up, and its last address is kept meanwhile: {error}");
        }
        Ok(Arc::clone(&last.addresses))
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

    /// Asks at `seconds` with a resolver that answers so.
    async fn ask(answers: &mut Answers, seconds: u64, look: impl FnOnce() -> Running) -> Option<Addresses> {
        answers.at("engine", Instant::ZERO + Duration::from_secs(seconds), look).await.ok()
    }

    fn says(list: &[&str]) -> impl FnOnce() -> Running + use<> {
        let found = sockets(list);
        || tokio::spawn(async move { Ok(found) })
    }

    fn fails() -> Running {
        tokio::spawn(async { Err(io::Error::other("no resolver")) })
    }

    #[tokio::test]
    async fn r5_a_resolver_that_fails_takes_away_nobody_who_answers() {
        let mut answers = Answers::default();
        assert_eq!(ask(&mut answers, 1, fails).await, None, "nothing is known");
        let first = ask(&mut answers, 2, says(&["10.0.0.1:1"])).await.expect("an answer");
        for (at, look) in [(8, true), (14, false), (600, true)] {
            let look = if look { fails } else { || tokio::spawn(async { Ok(Vec::new()) }) };
            let kept = ask(&mut answers, at, look).await.expect("it is kept");
            assert!(Arc::ptr_eq(&kept, &first), "{at}");
        }
        let second = ask(&mut answers, 610, says(&["10.0.0.2:1"])).await;
        assert_eq!(second.as_deref(), Some(&sockets(&["10.0.0.2:1"])[..]), "a newer one counts");
        assert!(ask(&mut answers, 1209, fails).await.is_some());
        assert_eq!(ask(&mut answers, 1214, fails).await, None, "not for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn r5_a_resolver_that_hangs_holds_up_nobody_for_long_and_is_asked_once() {
        let mut answers = Answers::default();
        let first = ask(&mut answers, 1, says(&["10.0.0.1:1"])).await;
        let (tell, told) = tokio::sync::oneshot::channel();
        let hangs = || tokio::spawn(async { told.await.map_err(io::Error::other) });
        let never = || -> Running { panic!("one lookup is on its way") };
        assert_eq!(ask(&mut answers, 10, hangs).await, first);
        assert_eq!(ask(&mut answers, 11, never).await, first, "not waited for again at once");
        assert_eq!(ask(&mut answers, 20, never).await, first);
        tell.send(sockets(&["10.0.0.2:1"])).expect("it waits");
        let second = ask(&mut answers, 30, never).await;
        assert_eq!(second.as_deref(), Some(&sockets(&["10.0.0.2:1"])[..]), "its answer counts");
    }

    #[tokio::test]
    async fn an_unknown_name_is_an_error() {
        Name::new("no-such-host.invalid", 80).addresses(Instant::ZERO).await.expect_err("no such name");
    }
}
