//! `tidegate why`: asks a running gateway why a deployment is as it is, and shows what holds now; with `--all` every
//! question with its answer.
//!
//! Never prints a control character that came from elsewhere, and colours only where the style says so.

use std::io::{self, Write};

use bytes::Bytes;
use clap::Args;
use http::Request;
use http_body_util::Full;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tidegate_shared::time::Duration;

use crate::admin::status::Status;
use crate::admin::why::{Finding, Standing, WhyAnswer};
use crate::config::BaseUrl;

use super::admin::{AdminArgs, AdminError, exchange, granted, parse, verbatim};
use super::grid::wrapped;
use super::style::{Style, Tint, clean};
use super::{CliError, status};

/// How long the whole exchange may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Columns of the words that say whether something holds.
const MARK: usize = 9;

pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate why               every deployment, one after the other, and the gateway itself
  tidegate why chat          what holds now, what matters most first
  tidegate why chat --all    every question with its answer
  tidegate why chat --json   the same for programs";

/// Arguments of `tidegate why`.
#[derive(Debug, Args)]
pub(super) struct WhyArgs {
    /// The deployment, by its name or an alias; all of them unless given.
    #[arg(value_name = "MODEL")]
    model: Option<String>,
    /// Answer every question, also those to which the answer is no.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    gateway: AdminArgs,
}

/// Asks and shows.
pub(super) fn run(args: &WhyArgs) -> Result<(), CliError> {
    let url = &args.gateway.url()?;
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let (models, own) = match &args.model {
        Some(model) => (vec![model.clone()], None),
        None => all(url)?,
    };
    let answers: Vec<Bytes> = models.iter().map(|model| ask(url, model)).collect::<Result<_, _>>()?;
    let shown = answers.iter().map(|answer| match args.gateway.json {
        true => verbatim(url, answer),
        false => Ok(render(&parse::<WhyAnswer>(url, answer)?, args.all, style)),
    });
    let own = own.filter(|_| !args.gateway.json).map(|what| Ok(gateway(&what, style)));
    let shown = shown.chain(own).collect::<Result<Vec<_>, _>>()?;
    let text = shown.join(if args.gateway.json { "" } else { "\n" });
    let mut out = stdout.lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Every deployment, in the order of the configuration; and what is the matter with the gateway itself: replicas that
/// deployments left which are in the configuration no more, records that cannot be kept.
fn all(url: &BaseUrl) -> Result<(Vec<String>, Option<String>), AdminError> {
    let status: Status = parse(url, &status::ask(url)?)?;
    let names = status.deployments.into_iter().map(|deployment| deployment.name).collect();
    Ok((names, status.records.and_then(|records| records.problem)))
}

/// What is the matter with the gateway itself.
fn gateway(what: &str, style: Style) -> String {
    const NAME: &str = "the gateway";
    format!("{}  {}\n", style.paint(Tint::Bold, NAME), wrapped(what, NAME.len() + 2, style))
}

/// The body of `GET /deployments/{name}/why`.
fn ask(url: &BaseUrl, model: &str) -> Result<Bytes, AdminError> {
    let path = format!("/deployments/{}/why", utf8_percent_encode(model, NON_ALPHANUMERIC));
    let asked = format!("GET {path}");
    let request = Request::get(path).body(Full::default());
    let request = request.map_err(|error| AdminError::foreign(url, error))?;
    granted(url, &asked, exchange(url, request, PATIENCE)?)
}

/// What holds and what lies ahead; with `all`, the rest too.
fn render(answer: &WhyAnswer, all: bool, style: Style) -> String {
    let name = clean(&answer.deployment);
    let now = wrapped(&answer.now, name.chars().count() + 2, style);
    let mut text = format!("{}  {now}\n", style.paint(Tint::Bold, &name));
    for finding in answer.findings.iter().filter(|finding| all || finding.standing != Standing::No) {
        text.push('\n');
        text.push_str(&paragraph(finding, style));
    }
    let rest = answer.findings.iter().filter(|finding| finding.standing == Standing::No).count();
    if !all && rest > 0 && style.terminal {
        let hint = match rest {
            1 => "1 more question has the answer no: --all".to_owned(),
            _ => format!("{rest} more questions have the answer no: --all"),
        };
        text.push_str(&format!("\n{}\n", style.paint(Tint::Dim, &hint)));
    }
    text
}

fn paragraph(finding: &Finding, style: Style) -> String {
    let (mark, tint) = match finding.standing {
        Standing::Now => ("now", Tint::Yellow),
        Standing::Ahead => ("ahead", Tint::Cyan),
        Standing::Normal => ("normal", Tint::Green),
        Standing::No => ("no", Tint::Dim),
    };
    let mark = style.paint(tint, &format!("  {mark:<width$}", width = MARK - 2));
    let question = wrapped(&finding.question, MARK, style);
    let mut text = format!("{mark}{}\n", style.paint(Tint::Bold, &question));
    let space = " ".repeat(MARK);
    text.push_str(&format!("{space}{}\n", wrapped(&finding.text, MARK, style)));
    for detail in &finding.details {
        text.push_str(&format!("{space}  {}\n", wrapped(detail, MARK + 4, style)));
    }
    if let Some(advice) = &finding.advice {
        let label = style.paint(Tint::Dim, "do: ");
        text.push_str(&format!("{space}{label}{}\n", wrapped(advice, MARK + 4, style)));
    }
    text
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
