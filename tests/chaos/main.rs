//! What must hold while things go wrong: the real binary is killed, its engines die, lie and hang, its clients leave
//! at every moment and flood it. After each harm the counts are exact, nothing is left over, and it serves again.
//!
//! Each test starts a gateway of its own. What it starts by itself is found by the mark that its engines carry, and
//! ended with the test. Tests are named after the rule (`q5_…`) or the reported case (`c_005_…`) that they prove.

#[cfg(test)]
mod clock;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod crowd;
#[cfg(test)]
mod cuts;
#[cfg(test)]
mod descriptors;
#[cfg(test)]
mod drains;
#[cfg(test)]
mod dying;
#[cfg(test)]
mod ending;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod floods;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod limited;
#[cfg(test)]
mod loading;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod parked;
#[cfg(test)]
mod ports;
#[cfg(test)]
mod records;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod streams;

/// The path of most tests.
pub(crate) const CHAT: &str = "/v1/chat/completions";
