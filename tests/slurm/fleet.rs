//! A gateway and a real Slurm, for one test each. Proves nothing by itself.

use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::eventually;
use tidegate_tests::gateway::{Gateway, binary};
use tidegate_tests::slurm::Cluster;

/// A gateway and its cluster. The gateway is dropped first.
pub(crate) struct Fleet {
    pub(crate) gateway: Gateway,
    pub(crate) cluster: Cluster,
}

impl Fleet {
    /// A gateway whose replicas are stand-in engines, each a job on one of the cluster's two GPUs. `None` where the
    /// machine does not allow it.
    pub(crate) async fn launch(set: impl Fn(Deployment) -> Deployment) -> Option<Self> {
        let cluster = Cluster::start()?;
        // The user of the jobs may not look into the folder where it was built.
        let engine = cluster.dir().join("tidegate");
        std::fs::copy(binary(), &engine).expect("the engine");
        let engine = engine.display().to_string();
        let command = [&engine, "engine", "--port", "{port}", "--model", "chat"];
        let command: Vec<toml::Value> = command.iter().map(|word| toml::Value::from(*word)).collect();
        let ports = cluster.ports();
        let deployment = Deployment::named("chat")
            .set("slurm.url", format!("unix:{}", cluster.socket().display()))
            .set("slurm.command", command)
            .set("slurm.gres", "gpu:1")
            .set("slurm.logs", cluster.logs().display().to_string())
            .set("slurm.ports", format!("{}-{}", ports.start(), ports.end()));
        let gateway = Gateway::launch(Config::of(set(deployment))).await;
        Some(Self { gateway, cluster })
    }

    /// Waits until exactly `count` jobs are there; their names and states.
    pub(crate) async fn jobs(&self, count: usize) -> Vec<String> {
        eventually(&format!("{count} jobs"), async || {
            let jobs = self.cluster.jobs();
            if jobs.len() == count { Ok(jobs) } else { Err(format!("{jobs:?}\n{}", self.gateway.log())) }
        })
        .await
    }

    /// Asks the gateway to end, and shows that it leaves no job.
    pub(crate) async fn leaves_no_job(mut self) {
        self.gateway.terminate();
        assert!(self.gateway.ended().await.success(), "it ends in peace");
        assert_eq!(self.cluster.jobs(), Vec::<String>::new(), "no job is left");
    }
}
