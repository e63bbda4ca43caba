//! Deployments as requests find them: by the model name that the client sends.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;
use tidegate_shared::id::DeploymentName;

use crate::http1::fields::Fields;
use crate::pool::Pool;
use crate::telemetry::meter::DeploymentMeter;

/// What serving a request needs to know of a deployment.
#[derive(Debug)]
pub struct Deployment {
    /// Its name.
    pub name: DeploymentName,
    /// Other names that clients may send.
    pub aliases: Vec<DeploymentName>,
    /// The name that the engine knows the model by.
    pub model: String,
    /// Headers that name a conversation, in order of precedence (R1).
    pub conversation_headers: Vec<HeaderName>,
    /// Its replicas, its line and its conversations.
    pub pool: Arc<Pool>,
    /// Its metrics.
    pub meter: Arc<DeploymentMeter>,
}

/// All deployments by name and alias.
#[derive(Debug, Default)]
pub struct Directory {
    by_model: BTreeMap<Box<str>, Arc<Deployment>>,
    /// In the order of the configuration.
    listed: Vec<Arc<Deployment>>,
    /// Headers that name a conversation for any of them.
    conversation_headers: Vec<HeaderName>,
}

impl Directory {
    /// A directory of `deployments`, whose names and aliases differ from each other.
    pub fn new(deployments: Vec<Arc<Deployment>>) -> Self {
        let (mut by_model, mut conversation_headers) = (BTreeMap::new(), Vec::new());
        for deployment in &deployments {
            for name in &deployment.conversation_headers {
                if !conversation_headers.contains(name) {
                    conversation_headers.push(name.clone());
                }
            }
            for name in std::iter::once(&deployment.name).chain(&deployment.aliases) {
                by_model.insert(name.as_str().into(), Arc::clone(deployment));
            }
        }
        Self { by_model, listed: deployments, conversation_headers }
    }

    /// The deployment that serves `model`.
    pub fn find(&self, model: &str) -> Option<Arc<Deployment>> {
        self.by_model.get(model).cloned()
    }

    /// Whether a request may have a header that names its conversation, for some deployment.
    pub fn may_be_named(&self, fields: &Fields) -> bool {
        self.conversation_headers
            .iter()
            .any(|name| fields.named(name.as_str()).is_some_and(|value| !value.is_empty()))
    }

    /// All of them, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Deployment>> {
        self.listed.iter()
    }
}
