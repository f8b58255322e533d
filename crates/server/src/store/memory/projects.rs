//! Projects.

use super::{Tables, conflict, exists, missing, page};
use crate::store::{Page, Result, Sealed, StoreError};
use stead_model::ids::ProjectId;
use stead_model::project::{Cloning, Filter, Project, Statistics};

const PROJECT: &str = "project";

impl Tables {
    pub(super) fn create_project(&mut self, project: &Project, credentials: Option<&Sealed>, most: u32) -> Result<()> {
        let kept = self.projects.values().filter(|project| project.retention.trashed_at.is_none()).count();
        if kept >= most as usize {
            return Err(StoreError::Limit { kind: PROJECT, most });
        }
        if self.projects.contains_key(&project.id) {
            return exists(PROJECT, &project.id);
        }
        self.projects.insert(project.id.clone(), project.clone());
        if let Some(credentials) = credentials {
            self.credentials.insert(project.id.clone(), credentials.clone());
        }
        Ok(())
    }

    pub(super) fn projects_where(&self, filter: &Filter, at: &Page) -> Vec<Project> {
        let found = self.projects.values().filter(|project| filter.takes(project));
        page(found, |project| (project.created_at, project.id.as_str()), at)
    }

    pub(super) fn replace_project(&mut self, before: &Project, after: &Project) -> Result<()> {
        let Some(stored) = self.projects.get_mut(&before.id) else { return missing(PROJECT, &before.id) };
        if stored.version != before.version {
            return conflict(PROJECT, &before.id);
        }
        let statistics = stored.statistics.clone();
        *stored = Project { statistics, ..after.clone() };
        if after.clone != Cloning::Wanted {
            self.credentials.remove(&before.id);
        }
        Ok(())
    }

    pub(super) fn project_statistics(&mut self, id: &ProjectId, change: impl FnOnce(&mut Statistics)) -> Result<()> {
        let Some(project) = self.projects.get_mut(id) else { return missing(PROJECT, id) };
        change(&mut project.statistics);
        Ok(())
    }
}
