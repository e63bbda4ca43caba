//! Asks the engine of a ready replica about once a second how full it is (G2), and tells the pool.
//!
//! One task a replica, each question bounded in time and size: an engine that answers slowly, hugely or nonsense makes
//! its own figures unknown and harms nobody else's (C-051). Decides nothing, and never speaks to an engine that is not
//! ready.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tidegate_shared::replica::EngineReport;

use super::dialect::{Dialect, LOOK, Pages, Reading};
use crate::endpoint::Endpoint;
use crate::once::{self, NoAnswer, Place};
use crate::pool::Pool;

/// Between two questions.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long one page may take: an older answer would be of little use.
const PATIENCE: Duration = Duration::from_secs(2);
/// Until an engine that spoke no known dialect is looked at again: some have no figures before their first request.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The engine of one replica, from its readiness to its end.
#[derive(Debug, Default)]
pub struct Signals {
    dialect: Dialect,
    /// Pages that do not change, once they came.
    constant: Pages,
    /// Those that are still to come.
    missing: Vec<&'static str>,
}

impl Signals {
    /// How the engine speaks, as far as it was recognised.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Recognises the dialect by the pages that the engine has. Gives the number of pages that are no pages of metrics.
    ///
    /// # Errors
    /// When a page did not come; then nothing has changed.
    pub async fn recognise(&mut self, place: Place<'_>) -> Result<u32, NoAnswer> {
        let mut pages = Pages::default();
        let mut dialect = Dialect::None;
        for path in LOOK {
            if let Some(page) = page(place, path).await? {
                pages.put(path, page);
            }
            dialect = Dialect::of(&pages);
            // Statistics of iterations are taken where there is nothing better.
            if !matches!(dialect, Dialect::None | Dialect::TrtLlmIterations) {
                break;
            }
        }
        *self = Self { dialect, constant: Pages::default(), missing: dialect.constant_pages().to_vec() };
        Ok(u32::from(dialect == Dialect::None && Dialect::is_garbage(&pages)))
    }

    /// Asks for the figures. Where a page does not come, what it would tell is unknown.
    pub async fn read(&mut self, place: Place<'_>) -> Reading {
        let mut pages = Pages::default();
        for path in self.dialect.pages() {
            if let Ok(Some(page)) = page(place, path).await {
                pages.put(path, page);
            }
        }
        // After the figures, which are to be as new as the moment of asking.
        for path in std::mem::take(&mut self.missing) {
            match page(place, path).await {
                Ok(page) => page.into_iter().for_each(|page| self.constant.put(path, page)),
                Err(_) => self.missing.push(path),
            }
        }
        pages.add(&self.constant);
        self.dialect.read(&pages)
    }
}

/// The page at `path`; `None` where the engine has none.
async fn page(place: Place<'_>, path: &str) -> Result<Option<Bytes>, NoAnswer> {
    let (status, page) = once::get(place, path, PATIENCE).await?;
    Ok((status == StatusCode::OK).then_some(page))
}

/// Asks for ever; drop the future when the replica is not ready any more.
pub(super) async fn keep_asking(pool: &Arc<Pool>, endpoint: &Arc<Endpoint>) -> Infallible {
    let mut signals = Signals::default();
    loop {
        while signals.dialect() == Dialect::None {
            let found = signals.recognise(endpoint.as_ref().into()).await;
            endpoint.count_signal_errors(*found.as_ref().unwrap_or(&1));
            if signals.dialect() == Dialect::None {
                endpoint.note_dialect(Dialect::None);
                tokio::time::sleep(if found.is_ok() { LOOK_AGAIN } else { INTERVAL }).await;
            }
        }
        if endpoint.engine().is_none_or(|engine| engine.dialect != signals.dialect()) {
            endpoint.note_dialect(signals.dialect());
            tracing::info!("{}: its engine speaks {}", endpoint.name(), signals.dialect().as_str());
        }
        let asked = pool.ask(endpoint);
        let Reading { report, errors } = signals.read(endpoint.as_ref().into()).await;
        endpoint.count_signal_errors(errors);
        pool.report(endpoint, EngineReport { asked, ..report });
        tokio::time::sleep(INTERVAL).await;
    }
}
