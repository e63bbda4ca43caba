//! `tidegate drain`: takes one replica of a running gateway out, or back in. One request to the admin port; what follows
//! from it is for the gateway to say.

use clap::Args;
use http::Method;
use percent_encoding::utf8_percent_encode;

use crate::admin::drain::{DrainAnswer, DrainState};

use super::CliError;
use super::admin::{AdminArgs, change, parse, verbatim};
use super::scale::{NAME, not_saved, print};
use super::style::clean;

pub(super) const DRAIN: &str = "\
The replica takes no new request, and what runs there ends by itself. Then it is stopped; one whose URL stands in the \
configuration just stays out. That holds over restarts. Conversations that are at home there move with their next turn, \
unless --keep-conversations lets them stay until they end; that is for replicas whose URL stands in the configuration.

Examples:
  tidegate drain chat chat-2
  tidegate drain chat chat-2 --keep-conversations
  tidegate drain chat chat-2 --undo";

/// Arguments of `tidegate drain`.
#[derive(Debug, Args)]
pub(super) struct DrainArgs {
    /// The deployment.
    #[arg(value_name = "MODEL")]
    model: String,
    /// The replica, as `tidegate status` names it, or its number.
    #[arg(value_name = "REPLICA")]
    replica: String,
    /// Let it take requests again.
    #[arg(long)]
    undo: bool,
    /// Let it take what its conversations ask, until they end, and nothing else.
    #[arg(long, conflicts_with = "undo")]
    keep_conversations: bool,
    #[command(flatten)]
    gateway: AdminArgs,
}

/// Takes it out or back in, and tells what follows.
pub(super) fn run(args: &DrainArgs) -> Result<(), CliError> {
    let url = &args.gateway.url()?;
    let [model, replica] = [&args.model, &args.replica].map(|name| utf8_percent_encode(name, NAME));
    let method = if args.undo { Method::DELETE } else { Method::POST };
    let body = if args.keep_conversations { r#"{"conversations": "stay"}"# } else { "" };
    let answer = change(url, method, &format!("/deployments/{model}/drain/{replica}"), body.to_owned())?;
    print(&match args.gateway.json {
        true => verbatim(url, &answer)?,
        false => text(parse(url, &answer)?),
    })
}

fn text(answer: DrainAnswer) -> String {
    let DrainAnswer { replica, state, follows, unsaved, .. } = answer;
    let state = match state {
        DrainState::In => "is in",
        DrainState::Draining => "drains",
        DrainState::Drained => "is drained",
        DrainState::Stopping => "is drained and being stopped",
        DrainState::OwnOnly => "keeps its conversations",
    };
    format!("{} {state}: {}\n{}", clean(&replica), clean(&follows), not_saved(unsaved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c5_what_follows_is_told_and_what_a_restart_would_forget() {
        let answer = r#"{"deployment":"chat","replica":"chat-2","state":"draining","in_flight":2,
            "follows":"it takes no new request","unsaved":"database or disk is full"}"#;
        let expected = "chat-2 drains: it takes no new request\nnot saved, a restart would forget it: database \
            or disk is full\n";
        assert_eq!(text(serde_json::from_str(answer).expect("the shape")), expected);
    }
}
