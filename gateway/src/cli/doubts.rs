//! What of a configuration is allowed and hardly meant: `tidegate check` warns of it, one sentence each.
//!
//! Looks at the configuration alone; what is missing on this machine is told by `programs`.

use crate::config::exec::COMMANDS;
use crate::config::{Config, Deployment, ServerLimits, Source, placeholder, show_size};

/// One sentence for each doubt.
pub(super) fn all(config: &Config) -> Vec<String> {
    let own = config.deployments.iter().flat_map(|one| {
        let told = [capped(one), too_many_parked(one), no_queue(one), short_start(one)]
            .into_iter()
            .flatten()
            .chain(placeholders(one));
        told.map(|told| format!("deployment {}: {told}", one.name)).collect::<Vec<_>>()
    });
    [small_bodies(config), small_budget(config)].into_iter().flatten().chain(own).collect()
}

/// Bodies that are usual and find no room.
fn small_bodies(config: &Config) -> Option<String> {
    let (limits, usual) = (&config.limits, ServerLimits::default().body);
    let cut = limits.body == limits.buffered && limits.body < usual;
    let (buffered, usual) = (show_size(limits.buffered), show_size(usual));
    cut.then(|| {
        format!("limits.buffered is {buffered}, so a larger request gets 413, and two that are as large do not fit; limits.body is {usual} unless given")
    })
}

/// A budget that the floors alone use up.
fn small_budget(config: &Config) -> Option<String> {
    let most = config.budget.replicas?;
    let sized = config.deployments.iter().filter(|one| one.source.can_start());
    if most == 0 && sized.clone().next().is_some() {
        return Some(
            "budget.replicas is 0: no replica is ever started; leave it out for no bound".to_owned(),
        );
    }
    let least = sized.fold(0u32, |sum, one| sum.saturating_add(one.sizing.floor()));
    (least > most)
        .then(|| format!("budget.replicas is {most}, but min asks for {least} over all deployments: {} of them are not started", least - most))
}

/// A target that no replica can come to.
fn capped(Deployment { sizing, .. }: &Deployment) -> Option<String> {
    let (target, limit) = (sizing.target_concurrency, sizing.limit);
    (target > limit).then(|| {
        format!("target_concurrency is {target}, but a replica is given {limit} at most by concurrency_limit, and counts as full then")
    })
}

/// More that sleep than there may be.
fn too_many_parked(Deployment { sizing, .. }: &Deployment) -> Option<String> {
    let (parked, max) = (sizing.parked, sizing.max);
    (parked > max)
        .then(|| format!("parked is {parked}, but max is {max}, and those that sleep count under it"))
}

/// Nobody may wait, where somebody must.
fn no_queue(Deployment { limits, sizing, source, .. }: &Deployment) -> Option<String> {
    let what = match (limits.queue_requests, limits.queue_bytes) {
        (0, _) => "queue.requests",
        (_, 0) => "queue.bytes",
        _ => return None,
    };
    let zero = source.can_start() && sizing.floor() == 0;
    let first = if zero { ", also the first one while no replica runs" } else { "" };
    Some(format!("{what} is 0: no request waits, so each that finds no free replica gets 503{first}"))
}

/// A replica that starts may be waited for less long than one that is there.
fn short_start(Deployment { limits, source, .. }: &Deployment) -> Option<String> {
    let (cold, headroom) = (limits.cold_start, limits.headroom);
    let show = |time| humantime::format_duration(time);
    (source.can_start() && cold < headroom).then(|| {
        format!(
            "queue.cold_start is {}, less than queue.headroom, which is {}: who comes while no replica runs gets 503 where a start takes longer",
            show(cold),
            show(headroom)
        )
    })
}

/// Words in braces that nothing stands for.
fn placeholders(Deployment { source, .. }: &Deployment) -> Vec<String> {
    let commands = match source {
        Source::Process(process) => vec![("process.command".to_owned(), &process.command, &["port"][..])],
        Source::Exec(spec) => {
            let named = COMMANDS.iter().zip([&spec.start, &spec.stop, &spec.list]);
            named.map(|((key, known), command)| (format!("exec.{key}"), command, *known)).collect()
        }
        Source::Docker(_) | Source::Slurm(_) | Source::Static(_) => Vec::new(),
    };
    let told = commands.into_iter().filter_map(|(key, command, known)| {
        let word = command.iter().find_map(|text| placeholder::stranger(text, known))?;
        let known: Vec<_> = known.iter().map(|known| format!("{{{known}}}")).collect();
        Some(format!(
            "{key} holds {{{word}}}, which is passed on as it is; what is filled in is {}",
            known.join(", ")
        ))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn told(text: &str) -> Vec<String> {
        all(&Config::parse(text, Path::new("/etc/tidegate/t.toml")).expect(text))
    }

    const ENGINE: &str = "process = { command = [\"e\", \"{port}\"] }\n";

    #[test]
    fn q1_a_target_that_no_replica_can_come_to_is_a_warning() {
        let of =
            |name: &str, settings: &str| format!("[[deployment]]\nname = \"{name}\"\n{settings}{ENGINE}");
        let text =
            of("a", "target_concurrency = 8\nconcurrency_limit = 3\n") + &of("b", "target_concurrency = 8\n");
        let expected = "deployment a: target_concurrency is 8, but a replica is given 3 at most by concurrency_limit, \
            and counts as full then";
        assert_eq!(told(&text), [expected]);
    }

    #[test]
    fn what_is_allowed_and_hardly_meant_is_a_warning() {
        for (head, settings, expected) in [
            ("", "min = 2\nparked = 4\n", None),
            ("limits = { body = \"1KiB\" }\nbudget = { replicas = 2 }\n", "min = 2\n", None),
            (
                "limits = { buffered = \"1KiB\" }\n",
                "",
                Some(
                    "limits.buffered is 1KiB, so a larger request gets 413, and two that are as large do not fit; limits.body is 64MiB unless given",
                ),
            ),
            (
                "budget = { replicas = 1 }\n",
                "min = 2\n",
                Some(
                    "budget.replicas is 1, but min asks for 2 over all deployments: 1 of them are not started",
                ),
            ),
            (
                "budget = { replicas = 0 }\n",
                "",
                Some("budget.replicas is 0: no replica is ever started; leave it out for no bound"),
            ),
            (
                "",
                "queue.requests = 0\n",
                Some(
                    "deployment chat: queue.requests is 0: no request waits, so each that finds no free replica gets 503, also the first one while no replica runs",
                ),
            ),
            (
                "",
                "min = 1\nqueue.bytes = 0\n",
                Some(
                    "deployment chat: queue.bytes is 0: no request waits, so each that finds no free replica gets 503",
                ),
            ),
            (
                "",
                "queue.cold_start = \"1s\"\nqueue.headroom = \"1h\"\n",
                Some(
                    "deployment chat: queue.cold_start is 1s, less than queue.headroom, which is 1h: who comes while no replica runs gets 503 where a start takes longer",
                ),
            ),
            (
                "",
                "max = 2\nparked = 9\n",
                Some("deployment chat: parked is 9, but max is 2, and those that sleep count under it"),
            ),
        ] {
            let text = format!("{head}[[deployment]]\nname = \"chat\"\n{settings}{ENGINE}");
            assert_eq!(told(&text), expected.into_iter().collect::<Vec<_>>());
        }
        let exec = "exec = { start = [\"f\", \"{nope}\"], stop = [\"f\", \"{id}\"], list = [\"sh\", \"awk {print}\"] }\n";
        let expected = "deployment chat: exec.start holds {nope}, which is passed on as it is; \
            what is filled in is {deployment}, {owner}, {id}, {name}, {offer}";
        assert_eq!(told(&format!("[[deployment]]\nname = \"chat\"\n{exec}")), [expected]);
    }
}
