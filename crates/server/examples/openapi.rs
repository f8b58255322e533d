//! Prints the description of the HTTP interface, for `cargo xtask openapi`.

use std::io::Write;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(stead_server::http::description().as_bytes())
}
