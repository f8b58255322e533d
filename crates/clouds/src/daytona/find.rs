//! Finding sandboxes by their labels, and making one where there is none. A sandbox is made at most once for the same
//! labels: whoever lost the answer to an order looks for what it made.

use super::Daytona;
use super::drive::Aim;
use super::state::{Sandbox, Stand};
use crate::retry::PATIENT;
use crate::wire::{self, Call};
use crate::{CloudError, Effect, Trouble, Wish};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

const MAKE: &str = "make a sandbox";

/// Asked for at once; it may give fewer.
const PAGE: u32 = 100;

/// More pages than any account has sandboxes for: a list that goes on is a circle.
const MOST_PAGES: usize = 1000;

/// An order that reached the cloud is in its list soon after.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(400);

/// It may build or fetch what the sandbox is made of before it answers: so many times the patience for other calls.
const MAKING: u32 = 4;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Order<'a> {
    labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_block_all: Option<bool>,
    auto_stop_interval: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    items: Vec<Sandbox>,
    next_cursor: Option<String>,
}

impl Daytona {
    /// Those that have the labels and aren't destroyed, the oldest first.
    pub(super) async fn find(
        &self,
        what: &'static str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<Sandbox>, CloudError> {
        let broken = |message: &str| CloudError::new(what, Trouble::Broken, Effect::None, message);
        let wanted = serde_json::to_string(labels).map_err(|error| broken(&error.to_string()))?;
        let mut found = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let ask = || {
                let mut request = self.control(Method::GET, "/sandbox").query(&[("limit", PAGE)]);
                if !labels.is_empty() {
                    request = request.query(&[("labels", &wanted)]);
                }
                if let Some(cursor) = &cursor {
                    request = request.query(&[("cursor", cursor)]);
                }
                wire::ask_json::<Page>(what, Call::Reads, self.patience(), request)
            };
            let page = PATIENT.call(ask).await?;
            // Asked of it already, and looked at again: what is destroyed by such a list must be ours.
            found.extend(page.items.into_iter().filter(|one| one.has(labels) && one.stand() != Stand::Destroyed));
            match page.next_cursor.filter(|next| !next.is_empty()) {
                None => {
                    found.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
                    return Ok(found);
                }
                next if next == cursor => return Err(broken("its list goes round in a circle")),
                next => cursor = next,
            }
        }
        Err(broken("its list doesn't end"))
    }

    pub(super) async fn find_or_make(&self, wish: &Wish) -> Result<String, CloudError> {
        if wish.cpus.is_some() || wish.memory_bytes.is_some() {
            let message = "the size of a sandbox comes with its snapshot: make one of that size, and name it";
            return Err(CloudError::new(MAKE, Trouble::Unsupported, Effect::None, message));
        }
        if wish.labels.is_empty() {
            let message = "a sandbox without labels could not be found again";
            return Err(CloudError::new(MAKE, Trouble::Broken, Effect::None, message));
        }
        if let Some(id) = self.find_usable(wish).await? {
            self.make_usable(&id).await?;
            return Ok(id);
        }
        let made = self.make(wish).await?;
        self.forget_toolbox(&made);
        match self.make_usable(&made).await {
            Ok(()) => Ok(made),
            Err(error) => {
                // Nobody has used it. One that was not even made well is not to be found instead of the next.
                if error.trouble == Trouble::Broken
                    && let Err(error) = self.drive(&made, Aim::Destroyed).await
                {
                    tracing::warn!(%error, sandbox = made, "a sandbox that failed is left behind");
                }
                Err(error)
            }
        }
    }

    async fn make_usable(&self, id: &str) -> Result<(), CloudError> {
        self.drive(id, Aim::Started).await?;
        self.answers(id).await
    }

    async fn find_usable(&self, wish: &Wish) -> Result<Option<String>, CloudError> {
        let found = self.find(MAKE, &wish.labels).await?;
        Ok(found.into_iter().find(|one| one.stand() != Stand::Ending).map(|one| one.id))
    }

    async fn make(&self, wish: &Wish) -> Result<String, CloudError> {
        let config = &self.0.config;
        let order = Order {
            labels: &wish.labels,
            snapshot: wish.template.as_deref().or(config.snapshot.as_deref()),
            target: config.target.as_deref(),
            network_block_all: wish.network.map(|allowed| !allowed),
            auto_stop_interval: config.auto_stop.as_secs().div_ceil(60),
        };
        let ask = || async {
            let request = self.control(Method::POST, "/sandbox").json(&order);
            match wire::ask_json::<Sandbox>(MAKE, Call::Changes, self.patience() * MAKING, request).await {
                // Not to be tried again: another order would make another sandbox.
                Err(error) if error.effect == Effect::Unknown => Ok(Err(error)),
                done => done.map(|sandbox| Ok(sandbox.id)),
            }
        };
        match PATIENT.call(ask).await? {
            Ok(id) => Ok(id),
            Err(error) => self.find_made(wish, error).await,
        }
    }

    /// What became of an order whose answer was lost.
    async fn find_made(&self, wish: &Wish, lost: CloudError) -> Result<String, CloudError> {
        for _ in 0..LOOKS {
            if let Ok(Some(id)) = self.find_usable(wish).await {
                return Ok(id);
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Err(lost)
    }
}
