//! llama.cpp's server, as of 2024 to b7200. `/metrics` (with `--metrics`) tells requests, `/slots` (unless `--no-slots`)
//! what each slot can hold and holds, `/props` the same sizes where `/slots` is off. Decides nothing.
//!
//! Slots that share one cache (`--kv-unified`) each tell the whole of it, so their sum is then too much; no page tells
//! that.

use serde_json::Value;
use tidegate_shared::request::Tokens;

use super::reader::{Bound, Reader};
use super::{METRICS, Names, Pages, Reading};

/// The page of slots.
pub(super) const SLOTS: &str = "/slots";
/// The page of settings.
pub(super) const PROPS: &str = "/props";

pub(super) const NAMES: Names = Names {
    running: &["requests_processing"],
    waiting: &["requests_deferred"],
    hits: &["prompt_tokens_cached_total"],
    ..Names::of("llamacpp", "")
};

/// Prompt tokens that were computed, those found in the cache not among them.
const COMPUTED: &str = "prompt_tokens_total";

/// Whether a page is a list of slots.
pub(super) fn is_slots(page: &[u8]) -> bool {
    slots(page).is_some_and(|slots| slots.first().is_some_and(|slot| slot.get("n_ctx").is_some()))
}

fn slots(page: &[u8]) -> Option<Vec<Value>> {
    serde_json::from_slice(page).ok()
}

pub(super) fn read(pages: &Pages) -> Reading {
    let slots = pages.get(SLOTS).and_then(slots);
    let mut reader = match slots {
        Some(_) => Reader::lenient(pages.get(METRICS), &NAMES),
        None => Reader::new(pages.get(METRICS), &NAMES),
    };
    let mut report = reader.report(None);
    let computed = reader.counter(&[COMPUTED]);
    report.prefix_queries = computed.zip(report.prefix_hits).map(|(computed, hits)| computed + hits);
    let props: Option<Value> = pages.get(PROPS).and_then(|page| serde_json::from_slice(page).ok());
    if let Some(slots) = &slots {
        let busy: Vec<&Value> = slots.iter().filter(|slot| is_busy(slot)).collect();
        report.running = report.running.or_else(|| u32::try_from(busy.len()).ok());
        report.slots = u32::try_from(slots.len()).ok();
        let mut each = |slots: &mut dyn Iterator<Item = &Value>,
                        tokens: fn(&mut Reader<'_>, &Value) -> Option<u64>| {
            slots.map(|slot| tokens(&mut reader, slot)).sum::<Option<u64>>().map(Tokens)
        };
        report.kv_capacity =
            each(&mut slots.iter(), |reader, slot| reader.json(slot.get("n_ctx"), Bound::Tokens));
        report.kv_used = each(&mut busy.into_iter(), held);
    } else if let Some(props) = &props {
        let count = reader.json(props.get("total_slots"), Bound::Requests);
        let each = props.get("default_generation_settings").and_then(|settings| settings.get("n_ctx"));
        let each = reader.json(each, Bound::Tokens);
        report.slots = count.and_then(|count| u32::try_from(count).ok());
        report.kv_capacity = count.zip(each).map(|(count, each)| Tokens(count.saturating_mul(each)));
    }
    reader.finish(report)
}

/// Since 2024-12 a flag, before that a number that is 0 at rest.
fn is_busy(slot: &Value) -> bool {
    match slot.get("is_processing") {
        Some(flag) => flag.as_bool() == Some(true),
        None => slot.get("state").and_then(Value::as_u64).is_some_and(|state| state != 0),
    }
}

/// Tokens that a busy slot holds. Newer versions count the answer among the prompt's tokens; others tell prompt and
/// answer apart; old ones tell `n_past`. Nothing told is unknown.
fn held(reader: &mut Reader<'_>, slot: &Value) -> Option<u64> {
    if let Some(past) = slot.get("n_past") {
        return reader.json(Some(past), Bound::Tokens);
    }
    let prompt = reader.json(slot.get("n_prompt_tokens"), Bound::Tokens)?;
    let next = slot.get("next_token").map(|next| next.get(0).unwrap_or(next));
    let mut count = |value: Option<&Value>| reader.json(value, Bound::Tokens).unwrap_or(0);
    let seen = count(slot.get("n_prompt_tokens_processed")) + count(slot.get("n_prompt_tokens_cache"));
    let answer = count(next.and_then(|next| next.get("n_decoded")));
    Some(prompt.max(seen + answer))
}
