//! Tokens.

use super::{Tables, exists, missing, page};
use crate::store::{Page, Result, TokenHash};
use stead_model::access::Token;
use stead_model::clock::Timestamp;
use stead_model::ids::TokenId;

const TOKEN: &str = "token";

impl Tables {
    pub(super) fn put_token(&mut self, token: &Token, hash: &TokenHash) -> Result<()> {
        if self.tokens.contains_key(&token.id) || self.token_by_hash(hash).is_some() {
            return exists(TOKEN, &token.id);
        }
        self.tokens.insert(token.id.clone(), (token.clone(), *hash));
        Ok(())
    }

    pub(super) fn token_by_hash(&self, hash: &TokenHash) -> Option<(Token, TokenHash)> {
        self.tokens.values().find(|(_, known)| known == hash).cloned()
    }

    pub(super) fn tokens_at(&self, at: &Page) -> Vec<Token> {
        page(self.tokens.values().map(|(token, _)| token), |token| (token.created_at, token.id.as_str()), at)
    }

    /// A clock that was set back makes nothing older.
    pub(super) fn touch_token(&mut self, id: &TokenId, at: Timestamp) -> Result<()> {
        let Some((token, _)) = self.tokens.get_mut(id) else { return missing(TOKEN, id) };
        token.last_used_at = token.last_used_at.max(Some(at));
        Ok(())
    }

    pub(super) fn revoke_token(&mut self, id: &TokenId, at: Timestamp) -> Result<()> {
        let Some((token, _)) = self.tokens.get_mut(id) else { return missing(TOKEN, id) };
        token.revoked_at = token.revoked_at.or(Some(at));
        Ok(())
    }
}
