//! Hugging Face's Text Generation Inference, names as of 1.0 to 3.3. Its batch reserves the tokens that each request
//! may take, so what it holds is what it has promised. Sizes are on `/info`, where the version tells them. Decides
//! nothing.

use serde_json::Value;
use tidegate_shared::request::Tokens;

use super::reader::{Bound, Reader};
use super::{METRICS, Names, Pages, Reading};

/// The page of its settings.
pub(super) const INFO: &str = "/info";

pub(super) const NAMES: Names = Names {
    running: &["batch_current_size"],
    waiting: &["queue_size"],
    used: &["batch_current_max_tokens"],
    ..Names::of("tgi", "")
};

pub(super) fn read(pages: &Pages) -> Reading {
    let mut reader = Reader::new(pages.get(METRICS), &NAMES);
    let mut report = reader.report(None);
    let info: Option<Value> = pages.get(INFO).and_then(|page| serde_json::from_slice(page).ok());
    let setting = |name: &str| info.as_ref().and_then(|info| info.get(name));
    report.kv_capacity = reader.json(setting("max_batch_total_tokens"), Bound::Tokens).map(Tokens);
    let slots = reader.json(setting("max_batch_size"), Bound::Requests);
    report.slots = slots.and_then(|slots| u32::try_from(slots).ok());
    reader.finish(report)
}
