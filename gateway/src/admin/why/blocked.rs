//! Why growth cannot be had: the price cap, no room, no fit, the gateway's cap (C2, M1), and the credit (M3).

use tidegate_scaler::control::Listed;
use tidegate_scaler_core::offer::{Blocked, choose, over_cap};
use tidegate_shared::decision::ScaleReason;
use tidegate_shared::offer::{Money, Offer, Price};
use tidegate_shared::time::Duration;

use super::facts::Facts;
use super::growth::unsized_fleet;
use super::startless::CAPPED;
use super::words::{count, memory, pick, span};
use super::{Finding, Line};

/// Offers that are told.
const TOLD: usize = 6;
/// A credit that lasts no longer than this is told before it is used up.
const SOON: Duration = Duration::from_secs(60 * 60);
/// What follows once the advice is taken.
const THEN: &str = "; growth goes on by itself then";
/// What to do where nothing else helps.
const WAIT: &str = "wait for room at the provider; growth goes on by itself then";

/// Scale-up blocked.
pub(super) fn supply(facts: &Facts<'_>) -> Finding {
    let line = Line::Blocked;
    if facts.decision().is_none() {
        return line.no(unsized_fleet(facts));
    }
    let (waits, cap) = (in_line(facts), facts.block(|block| matches!(block, ScaleReason::GatewayCap { .. })));
    let offer = facts.block(|block| by_offer(block).is_some()).and_then(by_offer).filter(|_| waits.is_none());
    let (why, advised) = [
        waits.clone(),
        offer.map(|blocked| (what(facts, blocked), advice(facts, blocked))),
        cap.and_then(|cap| under_cap(facts, cap)),
    ]
    .into_iter()
    .flatten()
    .unzip::<_, _, Vec<_>, Vec<_>>();
    if !why.is_empty() {
        let why = why.join(", and ");
        let text = if waits.is_some() { why } else { format!("{}, but {why}", wanted(facts)) };
        let told = match (&waits, offer) {
            (Some(_), _) => waiting(facts),
            (None, Some(_)) => offers(facts.offers()),
            (None, None) => Vec::new(),
        };
        return line.now(text).advise(advised.join("; also, ")).detail(told);
    }
    if facts.block(|block| matches!(block, ScaleReason::ProviderHolds { .. })).is_some() {
        return line.no("what is wanted is ordered; that the provider does not start it is told beside");
    }
    if facts.view.provider_error.is_some() {
        return line.no("what the provider offers is not known: it does not answer");
    }
    if facts.current() >= facts.sizing.ceiling() {
        return line.no("nothing more may be started, so no offer is looked for");
    }
    match choose(facts.offers(), facts.sizing, 1) {
        (_, Some(blocked)) => {
            let text = format!("{}, but {}", not_now(facts), what(facts, blocked));
            line.ahead(text).advise(advice(facts, blocked)).detail(offers(facts.offers()))
        }
        (chosen, _) => line.no(match chosen.first() {
            Some(offer) => format!("one more would be started on {}", told(offer)),
            None => "no offer is known yet".to_owned(),
        }),
    }
}

/// That nothing more is wanted, or not before a check has found it so.
fn not_now(facts: &Facts<'_>) -> &'static str {
    match facts.reason() {
        Some(ScaleReason::Confirming { .. }) => "nothing more is wanted before the check that confirms it",
        _ => "nothing more is wanted now",
    }
}

/// That what is missing, though the credit keeps nobody from it, has run before and is replaced (M3).
fn lost(facts: &Facts<'_>) -> Option<String> {
    let decision = facts.decision()?;
    let missing = decision.target.saturating_sub(decision.current.max(facts.current()));
    // Else it is one that comes back from where it drains.
    let starts = decision.reason == ScaleReason::Replacing || decision.blocks().next().is_some();
    let (was, is) = (pick(missing, "was", "were"), pick(missing, "is", "are"));
    (missing > 0 && starts).then(|| format!("{missing} that {was} lost {is} replaced all the same"))
}

/// All that are wanted are ordered, as far as `max` allows, and some of them wait until their provider has room.
fn line(facts: &Facts<'_>) -> Option<String> {
    facts.block(|block| *block == ScaleReason::NoCapacity)?;
    let missing = facts.decision()?.target.saturating_sub(facts.current());
    let some = Some(facts.in_line()).filter(|some| *some > 0 && missing == 0)?;
    let (are, wait) = (pick(some, "is", "are"), pick(some, "waits", "wait"));
    Some(format!("{} {are} ordered and {wait} for room in the provider's line", count(some, "replica")))
}

/// The same, with what the price cap keeps them from, and what to do about it.
fn in_line(facts: &Facts<'_>) -> Option<(String, String)> {
    let line = line(facts)?;
    let beyond = facts.block(|block| matches!(block, ScaleReason::RoomOverCap { .. }));
    Some(match beyond {
        Some(ScaleReason::RoomOverCap { cap, cheapest }) => {
            let name = over_cap(facts.offers(), facts.sizing).filter(|offer| offer.price == *cheapest);
            let name = name.map_or("another offer", |offer| &offer.name);
            let text = format!("{line}; {name} at {cheapest} has room, but the price cap is {cap}");
            (text, wait_or_raise(*cheapest))
        }
        _ => (line, WAIT.to_owned()),
    })
}

fn has_room(offer: &Offer) -> bool {
    offer.free != Some(0)
}

/// What to do where no offer within the cap has room, and one at `price` beyond it has.
fn wait_or_raise(price: Price) -> String {
    format!("wait for room, or raise price_cap to {price} or more{THEN}")
}

/// What each that waits for room waits for.
fn waiting(facts: &Facts<'_>) -> Vec<String> {
    let lines = facts.view.pending.iter().filter(|(id, _)| facts.view.in_line.contains(id));
    lines.take(TOLD).map(|(id, why)| format!("{}: {why}", facts.replica(*id))).collect()
}

/// What the offers have to do with it.
fn by_offer(reason: &ScaleReason) -> Option<Blocked> {
    match reason {
        ScaleReason::PriceCap { cap, cheapest } => Some(Blocked::PriceCap { cap: *cap, cheapest: *cheapest }),
        ScaleReason::NoCapacity => Some(Blocked::NoCapacity),
        ScaleReason::NoFit => Some(Blocked::NoFit),
        _ => None,
    }
}

/// That the gateway's cap is reached, and what to do about it.
fn under_cap(facts: &Facts<'_>, reason: &ScaleReason) -> Option<(String, String)> {
    let ScaleReason::GatewayCap { cap } = reason else { return None };
    let (most, them) = (count(*cap, "replica"), pick(*cap, "it", "them"));
    let firm = if facts.is_capped() { "; no other deployment has one to spare" } else { "" };
    let text = format!("the gateway may have {most} over all deployments, and has {them}{firm}");
    Some((text, CAPPED.to_owned()))
}

/// What is wanted and not there, with what asks for it.
fn wanted(facts: &Facts<'_>) -> String {
    let Some(decision) = facts.decision() else { return String::new() };
    let current = facts.current();
    // What the load needs may be more than `max`, and what else is wanted more than the load needs.
    let waited = decision.waited();
    let by_load = decision.needed >= decision.target && decision.needed > current && waited.is_none();
    let missing = if by_load { decision.needed } else { decision.target }.saturating_sub(current).max(1);
    let beside = if current == 0 { String::new() } else { format!(" beside the {current} there") };
    let more = format!("{missing} more {} wanted{beside}", pick(missing, "replica is", "replicas are"));
    match waited.or_else(|| decision.wants().filter(|_| !by_load)) {
        None if by_load => format!("{more} ({})", facts.needs(decision)),
        None => more,
        Some(cause) => format!("{more} ({cause})"),
    }
}

fn what(facts: &Facts<'_>, blocked: Blocked) -> String {
    let all = facts.offers();
    let fits = |offer: &&Offer| facts.sizing.memory.is_none_or(|need| offer.memory >= Some(need));
    match blocked {
        Blocked::PriceCap { cap, cheapest } => {
            let fitting: Vec<&Offer> = all.iter().filter(fits).collect();
            let name = fitting
                .iter()
                .find(|offer| offer.price == cheapest)
                .map(|offer| format!(" ({})", offer.name));
            let which = match fitting.len() {
                0 | 1 => "the one offer that fits".to_owned(),
                many => format!("the cheapest of {many} offers that fit"),
            };
            format!("{which} costs {cheapest}{}, and the price cap is {cap}", name.unwrap_or_default())
        }
        Blocked::NoCapacity if all.is_empty() => "the provider offers nothing".to_owned(),
        Blocked::NoCapacity => {
            let within = |offer: &&Offer| facts.sizing.price_cap.is_none_or(|cap| offer.price <= cap);
            let usable = all.iter().filter(fits).filter(within).count() as u64;
            let cap = facts
                .sizing
                .price_cap
                .map(|cap| format!(" within the price cap of {cap}"))
                .unwrap_or_default();
            let dearer = over_cap(all, facts.sizing);
            let dearer =
                dearer.map(|offer| format!("; the next with room is {}", told(offer))).unwrap_or_default();
            let said = facts.view.no_room.as_deref().and_then(|said| said.lines().next());
            let said = said.map(|said| format!(" ({said})")).unwrap_or_default();
            format!("{}{cap} {} no room left{said}{dearer}", of_those(usable), pick(usable, "has", "have"))
        }
        Blocked::NoFit => {
            let need = memory(facts.sizing.memory.unwrap_or_default());
            match all.iter().filter_map(|offer| offer.memory).max() {
                Some(largest) => {
                    format!("the model needs {need} and the largest offer has {}", memory(largest))
                }
                None => format!("the model needs {need} and no offer tells its memory"),
            }
        }
    }
}

fn of_those(usable: u64) -> String {
    match usable {
        1 => "the one offer that fits".to_owned(),
        many => format!("the {many} offers that fit"),
    }
}

fn advice(facts: &Facts<'_>, blocked: Blocked) -> String {
    match blocked {
        Blocked::PriceCap { cheapest, .. } => format!("raise price_cap to {cheapest} or more{THEN}"),
        Blocked::NoCapacity => {
            let over = over_cap(facts.offers(), facts.sizing);
            over.map_or_else(|| WAIT.to_owned(), |offer| wait_or_raise(offer.price))
        }
        Blocked::NoFit => "offer a larger machine, or correct what the model is said to need".to_owned(),
    }
}

/// The offers, the cheapest first.
fn offers(all: &[Offer]) -> Vec<String> {
    let mut all: Vec<&Offer> = all.iter().collect();
    all.sort_by_key(|offer| (offer.price, &offer.name));
    let mut lines: Vec<String> = all.iter().take(TOLD).map(|offer| told(offer)).collect();
    if let Some(more) = all.len().checked_sub(TOLD).filter(|more| *more > 0) {
        lines.push(format!("and {more} more, dearer"));
    }
    lines
}

/// `l40s at $1.35/h, 48 GiB, 3 free`.
fn told(offer: &Offer) -> String {
    let mut parts = vec![match offer.price {
        Price::FREE => offer.name.clone(),
        price => format!("{} at {price}", offer.name),
    }];
    parts.extend(offer.memory.map(memory));
    parts.extend(
        offer.free.map(|free| if free == 0 { "none free".to_owned() } else { format!("{free} free") }),
    );
    parts.extend(offer.cached.then(|| "weights there".to_owned()));
    parts.join(", ")
}

/// Scale-up stopped while credit is empty.
pub(super) fn credit(facts: &Facts<'_>) -> Finding {
    let line = Line::NoCredit;
    let spending = facts.spending;
    let Some(left) = spending.credit.filter(|_| facts.sized) else { return line.no("no credit is counted") };
    let spent = format!("{} spent here", spending.spent);
    let paid = facts.view.outlook.as_ref().is_none_or(|outlook| outlook.paid);
    let block = facts.block(|block| *block == ScaleReason::NoCredit);
    if left.0 > 0 {
        return match lasts(left, facts.burn) {
            _ if facts.listed == Listed::Never => line.no(format!(
                "{left} of credit is left, {spent}; how long it lasts is not known yet: a provider has not answered since the \
                 gateway started, and what it runs costs all the same"
            )),
            None => line.no(format!("{} of credit is left, {spent}; nothing costs anything now", left)),
            Some(time) => {
                let text = format!(
                    "{} of credit is left, {spent}; it lasts {} at {} for all deployments{}",
                    left,
                    span(time),
                    facts.burn,
                    as_of(facts.listed)
                );
                if time <= SOON && paid {
                    line.ahead(text).advise("raise the credit before it is used up")
                } else {
                    line.no(text)
                }
            }
        };
    }
    if block.is_none() && !paid {
        let text =
            format!("the credit is used up (balance {left}, {spent}), but what is started here is free");
        return line.no(text);
    }
    let runs = match spending.rate {
        _ if facts.view.listed.is_none() => {
            "nothing new is started; what runs is not known yet: the provider has not answered".to_owned()
        }
        Price::FREE => "nothing is started".to_owned(),
        rate => {
            let as_of = as_of(facts.view.listed(facts.seen.at));
            format!("nothing new is started, and what runs is kept at {rate}{as_of}")
        }
    };
    let text = format!("the credit is used up (balance {}, {spent}): {runs}", left);
    let advice = format!("raise the credit{THEN}");
    match block {
        Some(_) => {
            let ordered = self::line(facts).filter(|_| facts.offers().iter().any(has_room));
            let wanted = ordered.map(|line| format!("{line}, and what has room costs"));
            line.now(format!("{text}; {}", wanted.unwrap_or_else(|| self::wanted(facts)))).advise(advice)
        }
        _ => {
            let lost = lost(facts).unwrap_or_else(|| not_now(facts).to_owned());
            line.ahead(format!("{text}; {lost}")).advise(advice)
        }
    }
}

/// Since when what costs is not known any better.
fn as_of(listed: Listed) -> String {
    match listed {
        Listed::Ago(age) => format!(", as of {} ago", span(age)),
        Listed::Now | Listed::Never => String::new(),
    }
}

/// How long `left` lasts at `burn`; for ever at none.
fn lasts(left: Money, burn: Price) -> Option<Duration> {
    let seconds = left.0.checked_mul(3600)?.checked_div(i128::from(burn.0))?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)))
}
