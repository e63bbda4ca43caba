//! Which of all that may be wrong with a deployment an operator should look at first, as `/status` tells it, and which
//! question of `why` that answers. It finds nothing out: each sentence is somebody else's.

use tidegate_scaler::control::ControlView;
use tidegate_shared::demand::Observation;
use tidegate_shared::id::DeploymentName;
use tidegate_shared::time::Instant;

use super::why::{self, Line, Startless};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// What it is, for people.
    pub(super) text: String,
    /// Which question it answers; `None` for one that `why` does not ask.
    pub(super) line: Option<Line>,
}

/// What it is looked for in.
pub(super) struct Place<'a> {
    pub(super) name: &'a DeploymentName,
    /// The kind of its provider.
    pub(super) provider: &'static str,
    pub(super) seen: &'a Observation,
    pub(super) view: &'a ControlView,
    /// Why what was set by hand is not in force.
    pub(super) misfit: Option<String>,
    /// Why nothing runs and nothing can be started.
    pub(super) startless: Option<&'a Startless>,
    pub(super) now: Instant,
}

impl Place<'_> {
    /// The first of all that is wrong; `None` where nothing is.
    pub(super) fn trouble(self) -> Option<Trouble> {
        let Self { name, provider, seen, view, misfit, startless, now } = self;
        let of = |line| move |text| Trouble { text, line: Some(line) };
        let unanswered = || why::unanswered(&format!("provider {provider}"), view, now);
        let refuses = || why::refuses(startless?, seen);
        let lost = || why::lost(view, seen.at).filter(|_| !why::is_whole(view, &seen.replicas));
        (view.provider_error.clone().map(of(Line::ProviderDown)))
            .or_else(|| unanswered().map(of(Line::ProviderDown)))
            .or_else(|| misfit.map(|text| Trouble { text, line: None }))
            .or_else(|| view.last_failure.clone().map(of(Line::StartsFail)))
            .or_else(|| why::held(name, view).map(|(held, _)| held).map(of(Line::StartsFail)))
            .or_else(|| refuses().map(of(Line::NothingStarts)))
            .or_else(|| why::shut(provider != "static", &seen.replicas).map(of(Line::Drained)))
            .or_else(|| view.clinging.values().next().cloned().map(of(Line::StopsFail)))
            .or_else(|| lost().map(of(Line::Lost)))
    }
}

impl Trouble {
    /// Whether it says already why nothing can be started: the refusals that come of it do, and so does the silence of the
    /// provider that it comes of.
    pub(super) fn tells(&self, startless: &Startless) -> bool {
        self.line == Some(Line::NothingStarts) || self.line == Some(startless.line)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_shared::time::Duration;

    use super::*;

    fn trouble(seen: &Observation, view: &ControlView, startless: &Startless) -> Option<Trouble> {
        let (name, now) = (&DeploymentName::new("chat"), seen.at);
        let place =
            Place { name, provider: "exec", seen, view, misfit: None, startless: Some(startless), now };
        place.trouble()
    }

    #[test]
    fn c2_what_keeps_a_fleet_from_starting_is_told_once_whatever_the_words() {
        let silent = Startless { line: Line::ProviderDown, why: "the provider does not answer".to_owned() };
        let zero = Startless { line: Line::NothingStarts, why: "max is 0".to_owned() };
        let (mut seen, mut view) = (Observation::default(), ControlView::default());
        assert_eq!(trouble(&seen, &view, &zero), None, "nobody asks");
        seen.queued = 1;
        let refused = trouble(&seen, &view, &zero).expect("trouble");
        assert!(
            refused.tells(&zero) && refused.text.ends_with("none can be started: max is 0"),
            "{refused:?}"
        );
        // In other words, and all the same.
        view.provider_error = Some("`list` failed: exit status 1".to_owned());
        let down = trouble(&seen, &view, &silent).expect("trouble");
        assert_eq!(down.line, Some(Line::ProviderDown));
        assert!(down.tells(&silent) && !down.tells(&zero), "max is 0 is another matter");
        // In the same words, and another matter.
        (view.provider_error, view.last_failure) = (None, Some("no `max is 0` in the file".to_owned()));
        assert!(!trouble(&seen, &view, &zero).expect("trouble").tells(&zero));
    }

    #[test]
    fn e2_each_trouble_names_the_question_that_tells_more_of_it() {
        let other = Startless { line: Line::Blocked, why: "no offer has room".to_owned() };
        let (seen, mut view) = (Observation::default(), ControlView::default());
        let line = |view: &ControlView| trouble(&seen, view, &other).and_then(|trouble| trouble.line);
        view.lost = Some((seen.at + Duration::from_secs(1), "chat-1 ended".to_owned()));
        assert_eq!(line(&view), Some(Line::Lost));
        view.clinging.insert(tidegate_shared::id::ReplicaId(1), "chat-1 does not stop".to_owned());
        assert_eq!(line(&view), Some(Line::StopsFail));
        view.last_failure = Some("chat-1 did not start".to_owned());
        assert_eq!(line(&view), Some(Line::StartsFail));
        view.provider_error = Some("it is away".to_owned());
        assert_eq!(line(&view), Some(Line::ProviderDown));
    }
}
