//! Overloads in virtual time, with clients that come back when told (Q2): how many of them are served then.

use std::collections::BTreeMap;

use super::*;

/// One overload.
#[derive(Clone)]
struct Overload {
    places: u32,
    /// Mean length of an answer.
    length: Duration,
    /// Whether answers differ in length, from nothing to twice the mean.
    varied: bool,
    /// New clients per second, and for how many seconds they come.
    rate: f64,
    seconds: u64,
    /// Clients there are at the very beginning.
    crowd: u64,
    /// Whether each asks something else.
    distinct: bool,
    /// Whether clients read only whole seconds.
    whole_seconds: bool,
    /// Whether they say how often they have tried, as OpenAI's SDKs do.
    counting: bool,
    /// Of a hundred refused clients, how many come back.
    obedient: u64,
    /// Seconds without any request before it begins, after a second of light use.
    idle: u64,
    /// Of a hundred clients, how many are urgent, and how many can wait.
    mix: (u64, u64),
    /// Whose fate is looked at.
    watched: Option<Priority>,
    /// Whether a second replica is ordered as it begins; starts take ten seconds.
    coming: bool,
}

impl Default for Overload {
    fn default() -> Self {
        Self {
            places: 8,
            length: Duration::from_millis(500),
            varied: true,
            rate: 24.0,
            seconds: 60,
            crowd: 0,
            distinct: true,
            whole_seconds: false,
            counting: false,
            obedient: 100,
            idle: 0,
            mix: (0, 0),
            watched: None,
            coming: false,
        }
    }
}

impl Overload {
    fn priority(&self, client: u64) -> Priority {
        let (urgent, patient) = self.mix;
        match client * 37 % 100 {
            lot if lot < urgent => Priority::High,
            lot if lot < urgent + patient => Priority::Low,
            _ => Priority::Normal,
        }
    }

    /// 1 for a client whose fate is looked at.
    fn counts(&self, priority: Priority) -> u64 {
        u64::from(self.watched.is_none_or(|watched| watched == priority))
    }
}

enum Event {
    /// The client with that number comes, for the `.1`th time.
    Arrive(u64, u32),
    /// The lease of that number ends.
    End(u64),
    /// Something happens to that replica.
    Change(ReplicaId, Change),
}

/// What came of the clients that were refused.
#[derive(Debug, Default, PartialEq)]
struct Came {
    refused: u64,
    /// Served when they came back for the first time.
    served: u64,
    /// Longest that a client was told, in seconds, and longest that somebody who came as told stood in line.
    told: f64,
    stood: f64,
}

impl Came {
    fn percent(&self) -> u64 {
        self.served * 100 / self.refused.max(1)
    }
}

struct World {
    overload: Overload,
    dispatcher: Dispatcher,
    events: BTreeMap<(Instant, u64), Event>,
    leases: BTreeMap<u64, Lease>,
    waiting: BTreeMap<TicketId, (u64, u32, Instant)>,
    serial: u64,
    random: u64,
    came: Came,
}

impl World {
    /// Between 0 and 1 (splitmix64).
    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64
    }

    fn at(&mut self, when: Instant, event: Event) {
        self.events.insert((when, self.serial), event);
        self.serial += 1;
    }

    fn serve(&mut self, now: Instant, tries: u32, lease: Lease) {
        self.came.served += u64::from(tries == 2) * self.overload.counts(lease.facts.priority);
        let length = self.overload.length;
        let length = if self.overload.varied { length.mul_f64(2.0 * self.random()) } else { length };
        self.leases.insert(self.serial, lease);
        self.at(now + length, Event::End(self.serial));
    }

    fn refuse(&mut self, now: Instant, client: u64, tries: u32, rejection: Rejection) {
        let counts = self.overload.counts(self.overload.priority(client));
        self.came.refused += u64::from(tries == 1) * counts;
        self.came.told = self.came.told.max(rejection.retry_after.as_secs_f64() * counts as f64);
        if tries < 5 && self.random() * 100.0 < self.overload.obedient as f64 {
            let told = match self.overload.whole_seconds {
                true => Duration::from_secs_f64(rejection.retry_after.as_secs_f64().ceil()),
                false => rejection.retry_after,
            };
            let way = Duration::from_secs_f64(0.000_5 + 0.002 * self.random());
            self.at(now + told + way, Event::Arrive(client, tries + 1));
        } else {
            self.came.refused -= u64::from(tries == 1) * counts;
        }
    }

    fn deliver(&mut self, now: Instant) {
        for (ticket, end) in self.dispatcher.take_woken() {
            let (client, tries, since) = self.waiting.remove(&ticket).unwrap();
            if tries > 1 {
                self.came.stood = self.came.stood.max(now.since(since).as_secs_f64());
            }
            match end {
                Ok(lease) => self.serve(now, tries, lease),
                Err(rejection) => self.refuse(now, client, tries, rejection),
            }
        }
    }

    fn step(&mut self, now: Instant, event: Event) {
        while self.dispatcher.deadline() <= now {
            let due = self.dispatcher.deadline();
            self.dispatcher.on_deadline(due);
            self.deliver(due);
        }
        match event {
            Event::Arrive(client, tries) => {
                let fingerprint = if self.overload.distinct { client } else { 7 };
                let mut facts = RequestFacts::clone(&ask(fingerprint));
                facts.retry = self.overload.counting.then_some(tries > 1);
                facts.priority = self.overload.priority(client);
                match self.dispatcher.arrive(now, &Arc::new(facts)) {
                    Verdict::Forward(lease) => self.serve(now, tries, lease),
                    Verdict::Wait(ticket) => {
                        self.waiting.insert(ticket, (client, tries, now));
                    }
                    Verdict::Reject(rejection) => self.refuse(now, client, tries, rejection),
                }
            }
            Event::End(lease) => {
                let lease = self.leases.remove(&lease).unwrap();
                self.dispatcher.end(now, lease, &Spent::default());
            }
            Event::Change(id, change) => self.dispatcher.change(now, id, change),
        }
        self.deliver(now);
    }
}

fn run(overload: &Overload) -> Came {
    let limits = Limits { concurrency: overload.places, ..Limits::default() };
    let mut world = World {
        overload: overload.clone(),
        dispatcher: fleet(limits, &[1]),
        events: BTreeMap::new(),
        leases: BTreeMap::new(),
        waiting: BTreeMap::new(),
        serial: 0,
        random: 1,
        came: Came::default(),
    };
    let mut client = 0;
    let mut arrive = |world: &mut World, when| {
        world.at(when, Event::Arrive(client, 1));
        client += 1;
    };
    for n in 0..4 * overload.idle.min(1) {
        arrive(&mut world, ms(10_000 + n * 250));
    }
    let begin = ms(1000 * overload.idle + 20_000);
    // The first replica has shown how long a start takes.
    world.dispatcher.change(ms(0), ReplicaId(1), Change::Gone);
    world.dispatcher.change(ms(0), ReplicaId(1), Change::Ordered(Capacity::ONE));
    world.dispatcher.change(ms(10_000), ReplicaId(1), Change::Ready);
    if overload.coming {
        world.at(begin, Event::Change(ReplicaId(2), Change::Ordered(Capacity::ONE)));
        world.at(begin + Duration::from_secs(10), Event::Change(ReplicaId(2), Change::Ready));
    }
    for _ in 0..overload.crowd {
        arrive(&mut world, begin);
    }
    let mut passed = Duration::ZERO;
    while passed.as_secs() < overload.seconds {
        arrive(&mut world, begin + passed);
        passed += Duration::from_secs_f64(-(1.0 - world.random()).max(1e-9).ln() / overload.rate);
    }
    while let Some(((now, _), event)) = world.events.pop_first() {
        world.step(now, event);
    }
    world.came
}

/// All of these must hold: at least so many percent are served at the first retry.
#[track_caller]
fn served(percent: u64, cases: &[(&str, Overload)]) {
    for (name, overload) in cases {
        let came = run(overload);
        assert!(came.refused >= 50, "{name}: {came:?}");
        assert!(came.percent() >= percent, "{name}: {} % of {came:?}", came.percent());
    }
}

#[test]
fn q2_who_comes_back_when_told_is_served() {
    let usual = Overload::default();
    let second = Duration::from_secs(1);
    let one = Overload { places: 1, length: second * 5, rate: 0.4, seconds: 300, ..usual.clone() };
    let four = Overload { places: 4, length: second * 20, rate: 0.4, seconds: 600, ..usual.clone() };
    let many = Overload { places: 160, length: second * 4, rate: 60.0, ..usual.clone() };
    served(
        98,
        &[
            ("half again too much", usual.clone()),
            ("answers of one length", Overload { varied: false, ..usual.clone() }),
            ("a crowd of 500", Overload { crowd: 500, rate: 0.1, ..usual.clone() }),
            ("a crowd of 500 and full load", Overload { crowd: 500, rate: 20.0, ..usual.clone() }),
            ("whole seconds", Overload { whole_seconds: true, ..usual.clone() }),
            ("half of them give up", Overload { obedient: 50, ..usual }),
            ("one place", one),
            ("few places, long answers", four.clone()),
            ("few places, long answers of one length", Overload { varied: false, ..four }),
            ("many places", many.clone()),
            ("many places, in step", Overload { varied: false, crowd: 500, ..many }),
        ],
    );
}

#[test]
fn q2_also_when_all_ask_the_same() {
    let same = Overload { distinct: false, ..Overload::default() };
    let crowd = Overload { crowd: 500, rate: 0.1, ..same.clone() };
    served(
        95,
        &[
            ("half again too much", same.clone()),
            ("whole seconds", Overload { whole_seconds: true, ..same.clone() }),
            ("a crowd", crowd.clone()),
            ("a crowd, whole seconds", Overload { whole_seconds: true, ..crowd }),
        ],
    );
    // Those who came just before a returning client took its place, had they not said that they are new.
    served(99, &[("OpenAI's SDKs", Overload { counting: true, places: 40, rate: 120.0, ..same })]);
}

#[test]
fn q2_what_is_told_is_how_long_it_takes() {
    let usual = Overload { rate: 0.1, ..Overload::default() };
    // 16 in a second, from the third second on.
    let crowd = run(&Overload { crowd: 500, ..usual.clone() });
    assert!((27.0..34.0).contains(&crowd.told), "500 take 31 s: {crowd:?}");
    let after_idle = run(&Overload { crowd: 100, idle: 50, ..usual });
    assert!(after_idle.told < 12.0, "100 take 6 s, and a quiet minute says nothing: {after_idle:?}");
    let deaf = run(&Overload { obedient: 0, seconds: 600, ..Overload::default() });
    assert!(deaf.told < 15.0, "clients that never come back are not waited for: {deaf:?}");
}

#[test]
fn q2_a_replica_on_its_way_counts_from_when_it_can_be_expected() {
    let coming = Overload { crowd: 400, rate: 0.1, coming: true, ..Overload::default() };
    served(98, &[("a replica in 10 s", coming.clone())]);
    let came = run(&coming);
    // 8 places give 16 a second for 10 s, then 16 places 32 a second.
    assert!((16.0..21.0).contains(&came.told), "400 take 17.5 s: {came:?}");
}

#[test]
fn q1_q2_who_can_wait_is_told_the_truth_while_the_urgent_go_first() {
    // 16 in a second. The urgent and the normal ones are 10, those that can wait 15.
    let usual = Overload { rate: 25.0, seconds: 300, mix: (30, 60), ..Overload::default() };
    let watched = |priority| Overload { watched: Some(priority), ..usual.clone() };
    served(98, &[("6 in a second are left for them", watched(Priority::Low))]);
    let low = run(&watched(Priority::Low));
    assert!((400.0..1000.0).contains(&low.told), "the last of 4,500 at 6 in a second: {low:?}");
    for priority in [Priority::High, Priority::Normal] {
        assert_eq!(run(&watched(priority)).refused, 0, "{priority}: as if the others were not there");
    }
}

#[test]
fn q1_q2_nothing_is_left_for_the_least_urgent_and_they_are_told_a_time_all_the_same() {
    // 16 in a second. The urgent ones are 7.5, the normal ones 12.5, those that can wait 5.
    let usual = Overload { rate: 25.0, seconds: 300, mix: (30, 20), ..Overload::default() };
    let watched = |priority| Overload { watched: Some(priority), ..usual.clone() };
    served(98, &[("8.5 in a second are left for them", watched(Priority::Normal))]);
    served(85, &[("ten times what it would take alone", watched(Priority::Low))]);
    assert_eq!(run(&watched(Priority::High)).refused, 0);
}
