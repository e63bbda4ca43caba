//! Looks for the programs that a configuration names, as the start of a replica would, and for the sockets of its providers.
//!
//! Runs none of them, and connects to nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use tidegate_scaler::provider::docker::DockerHost;
use tidegate_scaler::provider::rest::Site;

use crate::config::{Config, Source};

/// One sentence for each program that is not on this machine.
pub(super) fn missing(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    for deployment in &config.deployments {
        let mut look = |key: &str, command: &[String], env: &BTreeMap<String, String>, dir: &Path| {
            let Some(program) = command.first() else { return };
            if !dir.is_dir() {
                let (table, _) = key.split_once('.').unwrap_or((key, ""));
                let told = format!(
                    "deployment {}: {table}.dir: there is no folder {}; no replica can start here",
                    deployment.name,
                    dir.display()
                );
                if !warnings.contains(&told) {
                    warnings.push(told);
                }
                return;
            }
            if let Some(why) = missing_one(program, env, dir) {
                warnings
                    .push(format!("deployment {}: {key}: {why}; no replica can start here", deployment.name));
            }
        };
        match &deployment.source {
            Source::Process(process) => look("process.command", &process.command, &process.env, &process.dir),
            Source::Exec(spec) => {
                for (key, command) in
                    [("exec.start", &spec.start), ("exec.stop", &spec.stop), ("exec.list", &spec.list)]
                {
                    look(key, command, &spec.env, &spec.dir);
                }
            }
            Source::Docker(_) | Source::Slurm(_) | Source::Static(_) => {}
        }
        let socket = match &deployment.source {
            Source::Docker(spec) => match &spec.host {
                DockerHost::Unix(path) => Some(("docker.host", Path::new(path))),
                DockerHost::Tcp(_) => None,
            },
            Source::Slurm(spec) => match &spec.access.site {
                Site::Unix(path) => Some(("slurm.url", path.as_path())),
                Site::Tcp { .. } => None,
            },
            Source::Process(_) | Source::Exec(_) | Source::Static(_) => None,
        };
        if let Some((key, path)) = socket.filter(|(_, path)| !is_socket(path)) {
            warnings.push(format!(
                "deployment {}: {key}: there is no socket {}; no replica can start here until something listens there",
                deployment.name,
                path.display()
            ));
        }
    }
    warnings
}

/// Why `program` cannot be run; `None` where it can.
fn missing_one(program: &str, env: &BTreeMap<String, String>, dir: &Path) -> Option<String> {
    if program.contains('/') {
        let path = dir.join(program);
        return (!runs(&path)).then(|| format!("{} is no program", path.display()));
    }
    let path = env.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| runs(&dir.join(folder).join(program)));
    (!found).then(|| format!("there is no program {program:?} on PATH"))
}

fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.file_type().is_socket())
}

fn runs(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_missing_are_named_and_others_are_not() {
        let text = "[[deployment]]\nname = \"chat\"\nprocess = { command = [\"no-such-engine-4711\", \"{port}\"] }\n\
            [[deployment]]\nname = \"fine\"\nprocess = { command = [\"sh\", \"{port}\"] }\n\
            [[deployment]]\nname = \"own\"\n[deployment.exec]\nstart = [\"./nothing\"]\nstop = [\"/bin/sh\"]\nlist = [\"sh\"]\n\
            [[deployment]]\nname = \"path\"\nprocess = { command = [\"sh\", \"{port}\"], env = { PATH = \"/nowhere\" } }\n\
            [[deployment]]\nname = \"lost\"\nprocess = { command = [\"sh\", \"{port}\"], dir = \"/nope\" }\n";
        let config = Config::parse(text, Path::new("/etc/t.toml")).expect("good");
        assert_eq!(
            missing(&config),
            [
                "deployment chat: process.command: there is no program \"no-such-engine-4711\" on PATH; no replica can start here",
                "deployment own: exec.start: /etc/./nothing is no program; no replica can start here",
                "deployment path: process.command: there is no program \"sh\" on PATH; no replica can start here",
                "deployment lost: process.dir: there is no folder /nope; no replica can start here",
            ]
        );
    }

    #[test]
    fn sockets_of_providers_that_are_missing_are_named_and_others_are_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let there = dir.path().join("docker.sock");
        let _listens = std::os::unix::net::UnixListener::bind(&there).expect("a socket");
        let docker = |name: &str, host: &str| {
            format!(
                "[[deployment]]\nname = \"{name}\"\n[deployment.docker]\nhost = \"{host}\"\nimage = \"engine\"\n"
            )
        };
        let slurm = "[[deployment]]\nname = \"jobs\"\n[deployment.slurm]\nurl = \"unix:/nowhere/rest.sock\"\n\
                     command = [\"serve\", \"{port}\"]\n";
        let text = [
            docker("chat", "unix:///nowhere/docker.sock"),
            docker("fine", &format!("unix://{}", there.display())),
            slurm.to_owned(),
        ];
        let config = Config::parse(&text.concat(), Path::new("/etc/tidegate/t.toml")).expect("good");
        let told = |start: &str| format!("{start}; no replica can start here until something listens there");
        assert_eq!(
            missing(&config),
            [
                told("deployment chat: docker.host: there is no socket /nowhere/docker.sock"),
                told("deployment jobs: slurm.url: there is no socket /nowhere/rest.sock"),
            ]
        );
    }
}
