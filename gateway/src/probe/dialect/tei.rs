//! Hugging Face's Text Embeddings Inference, names as of 1.2 to 1.8. It has no cache of keys and values, and does not
//! say what it works on; its queue counts inputs, of which a request may hold several. Decides nothing.

use serde_json::Value;

use super::reader::{Bound, Reader};
use super::{METRICS, Names, Pages, Reading, tgi};

pub(super) const NAMES: Names = Names { waiting: &["queue_size"], ..Names::of("te", "") };

pub(super) fn read(pages: &Pages) -> Reading {
    let mut reader = Reader::new(pages.get(METRICS), &NAMES);
    let mut report = reader.report(None);
    let info: Option<Value> = pages.get(tgi::INFO).and_then(|page| serde_json::from_slice(page).ok());
    let slots = reader.json(info.as_ref().and_then(|info| info.get("max_batch_requests")), Bound::Requests);
    report.slots = slots.and_then(|slots| u32::try_from(slots).ok());
    reader.finish(report)
}
