//! Which providers are fit for whoever is bound to a project. A provider that keeps nothing apart is the whole machine:
//! the first token lies there, and so does everything of all other projects.

use super::Stead;
use crate::error::Error;
use stead_model::ids::{ProjectId, ProviderName};

impl Stead {
    /// Whether work for a project alone may be done on a provider: it isolates, or whoever runs the server has said so, by
    /// making it the default or the project's own.
    pub(crate) async fn is_fit_for(&self, provider: &ProviderName, project: Option<&ProjectId>) -> Result<bool, Error> {
        let core = &self.inner.core;
        if core.provider(provider)?.capabilities().isolated || *provider == self.inner.settings.default_provider {
            return Ok(true);
        }
        let Some(project) = project else { return Ok(false) };
        let project = core.store.project(project).await?;
        Ok(project.is_some_and(|project| project.config.provider.as_ref() == Some(provider)))
    }
}
