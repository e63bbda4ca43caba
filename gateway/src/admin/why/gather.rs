//! Gathers what the findings are made from, and answers `GET /deployments/{name}/why`. The name may be an alias, and hold
//! slashes or escapes. Changes nothing.

use bytes::Bytes;
use tidegate_shared::offer::Price;

use super::facts::{Facts, Known};
use super::{WhyAnswer, answer};
use crate::admin::manage::find;
use crate::admin::{Admin, Watched, drain, drift};
use crate::openai::ApiError;

/// The deployment that `path`, `/deployments/{name}/why`, is about.
pub(in crate::admin) fn asked_about(path: &str) -> Option<&str> {
    path.strip_prefix("/deployments/")?.strip_suffix("/why").filter(|name| !name.is_empty())
}

/// The answer, as JSON.
///
/// # Errors
/// 404 with the names that there are where `path` names no deployment.
pub(in crate::admin) fn why(admin: &Admin, path: &str) -> Result<Bytes, ApiError> {
    let watched = find(admin, asked_about(path).unwrap_or_default())?;
    Ok(serde_json::to_vec(&of(admin, watched)).unwrap_or_default().into())
}

fn of(admin: &Admin, watched: &Watched) -> WhyAnswer {
    let (seen, details, _) = watched.pool.inspect();
    let (recent, start_took) = watched.pool.lately();
    let (drained, fixed) = (watched.helm.drained(), watched.provider == "static");
    let replicas: Vec<Known> = details
        .iter()
        .zip(&seen.replicas)
        .map(|(detail, facts)| Known {
            drained: drain::sentence(drained.get(&facts.id), facts, fixed, seen.at),
            over: detail.over,
            trust: detail.trust,
            unfit: detail.unfit,
            trouble: detail
                .endpoint
                .as_ref()
                .and_then(|endpoint| endpoint.trouble())
                .map(|why| why.to_string()),
        })
        .collect();
    let sized: Vec<_> = admin.watched.iter().filter(|one| one.provider != "static").collect();
    let costs = sized.iter().map(|one| admin.house.spending(one.pool.name(), seen.at).rate.0);
    let burn = costs.fold(0, u64::saturating_add);
    let listed = sized.iter().map(|one| one.control.view().listed(seen.at)).max().unwrap_or_default();
    answer(&Facts {
        name: watched.pool.name(),
        sizing: &watched.resizer.sizing(),
        sized: watched.provider != "static",
        seen: &seen,
        replicas: &replicas,
        view: &watched.control.view_of(&seen),
        spending: admin.spending(watched, seen.at),
        burn: Price(burn),
        listed,
        recent: &recent,
        drift: drift::told(watched, watched.resizer.tuned(admin.house.lasting(seen.at)).as_ref()),
        front: admin.gateway.tls.as_ref().and_then(|shown| Some((shown.trouble()?, shown.is_pressing()))),
        start_took,
    })
}
