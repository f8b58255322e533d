//! Agents with a protocol of their own, a JSON value a line: the app server of Codex, the streaming mode of Claude Code.

mod claude;
mod codex;

pub use claude::Claude;
pub use codex::Codex;
