//! What is quoted of an engine that ended or is not ready. Only words.

/// Lines of an engine's output that the reason of a failed start quotes, at most.
pub(super) const QUOTED_LINES: usize = 20;

/// How an engine ended, with its last words.
pub(super) fn quote(how: &str, output: &[String]) -> String {
    match last_lines(output) {
        Some(lines) => format!("the engine ended ({how}){lines}"),
        None => format!("the engine ended ({how}) and printed nothing"),
    }
}

/// What an engine that runs and is not ready says of itself: to its probe, and on its output.
pub(in crate::control) fn explain(trouble: Option<String>, output: &[String]) -> String {
    let trouble = trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default();
    trouble + &last_lines(output).unwrap_or_default()
}

fn last_lines(output: &[String]) -> Option<String> {
    let last = output.get(output.len().saturating_sub(QUOTED_LINES)..).unwrap_or_default();
    (!last.is_empty()).then(|| format!("; its last lines:\n{}", last.join("\n")))
}
