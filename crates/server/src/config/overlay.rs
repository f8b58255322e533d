//! Settings from the environment: `STEAD_<SECTION>_<NAME>` stands above the file. One that names no setting is refused
//! like one in the file.

use super::ConfigError;
use std::collections::BTreeMap;
use toml::{Table, Value};

const PROVIDER: &str = "STEAD_PROVIDER_";
const DEFAULT: &str = "STEAD_DEFAULT_PROVIDER";
/// The whole table of routes, as JSON.
const ROUTES: &str = "STEAD_ROUTES";
const ROUTES_ALIAS: &str = "AGENT_BACKEND_ROUTES";

/// Settings under the names that they have elsewhere: variable, section, key. The name of ours stands above.
const ALIASES: [(&str, &str, &str); 9] = [
    ("MEMORY_SNAPSHOT_ENABLED", "memory", "snapshot_enabled"),
    ("MEMORY_SNAPSHOT_INTERVAL", "memory", "snapshot_interval_s"),
    ("MAX_PROJECTS", "projects", "max_projects"),
    ("PROJECT_CLEANUP_ENABLED", "projects", "cleanup_enabled"),
    ("PROJECT_CLEANUP_AFTER_DAYS", "projects", "cleanup_after_days"),
    ("PROJECT_CLEANUP_WARNING_DAYS", "projects", "cleanup_warning_days"),
    ("PROJECT_CLEANUP_CHECK_INTERVAL", "projects", "cleanup_check_interval_s"),
    ("CONTAINER_STOP_ON_DISCONNECT", "projects", "stop_on_disconnect"),
    ("CONTAINER_RECREATE_ON_RECONNECT", "projects", "recreate_on_reconnect"),
];

/// Whether a variable is a setting though it doesn't begin as ours do.
pub fn is_alias(variable: &str) -> bool {
    variable == ROUTES_ALIAS || ALIASES.iter().any(|(alias, ..)| *alias == variable)
}

/// Sections whose settings are variables by their names alone.
const SECTIONS: [&str; 4] = ["server", "agents", "projects", "memory"];

/// Puts variables over what a file says. `table` is changed; a variable of another section is somebody else's.
pub(super) fn lay(table: &mut Table, variables: &[(String, String)]) -> Result<(), ConfigError> {
    // Aliases first: our own names stand above them.
    let (aliases, ours): (Vec<_>, Vec<_>) = variables.iter().partition(|(variable, _)| is_alias(variable));
    for (variable, text) in aliases.into_iter().chain(ours) {
        let wrong = |message: &str| ConfigError::Setting {
            file: "the environment".to_owned(),
            key: variable.clone(),
            message: message.to_owned(),
        };
        if variable == DEFAULT {
            table.insert("default_provider".to_owned(), Value::String(text.clone()));
        } else if variable == ROUTES || variable == ROUTES_ALIAS {
            if !text.trim().is_empty() {
                table.insert("routes".to_owned(), routes(text).map_err(|message| wrong(&message))?);
            }
        } else if let Some((_, name, key)) = ALIASES.iter().find(|(alias, ..)| alias == variable) {
            let place =
                section(table, &[(*name).to_owned()]).ok_or_else(|| wrong("its section is none in the file"))?;
            place.insert((*key).to_owned(), value(&text.to_ascii_lowercase()));
        } else if let Some((name, key)) = plain(variable) {
            let place = section(table, &[name]).ok_or_else(|| wrong("its section is none in the file"))?;
            place.insert(key, value(text));
        } else if let Some(rest) = variable.strip_prefix(PROVIDER) {
            let (name, key) = split(table, rest).ok_or_else(|| wrong("it names no provider that is configured"))?;
            let mut path = vec!["provider".to_owned(), name];
            let key = match key.strip_prefix("limits_") {
                Some(limit) => {
                    path.push("limits".to_owned());
                    limit.to_owned()
                }
                None => key,
            };
            section(table, &path).ok_or_else(|| wrong("that is no section in the file"))?.insert(key, value(text));
        }
    }
    Ok(())
}

/// A table of routes in JSON; looked at here, so that what is wrong is told with its variable.
fn routes(text: &str) -> Result<Value, String> {
    let written: BTreeMap<String, serde_json::Value> = serde_json::from_str(text)
        .map_err(|error| format!("it is not a JSON object of paths and backends: {error}"))?;
    crate::space::table(written).map_err(|error| error.to_string())?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// `STEAD_SERVER_LISTEN` as section `server` and key `listen`.
fn plain(variable: &str) -> Option<(String, String)> {
    let rest = variable.strip_prefix("STEAD_")?;
    SECTIONS.iter().find_map(|name| {
        let key = rest.strip_prefix(&name.to_ascii_uppercase())?.strip_prefix('_')?;
        Some(((*name).to_owned(), key.to_ascii_lowercase()))
    })
}

/// The table at a path, made where it isn't.
fn section<'a>(table: &'a mut Table, path: &[String]) -> Option<&'a mut Table> {
    path.iter().try_fold(table, |table, name| {
        table.entry(name.clone()).or_insert_with(|| Value::Table(Table::new())).as_table_mut()
    })
}

/// `BIG_BOX_ON_EXIT` as provider `big-box` and key `on_exit`: the longest name that is configured.
fn split(table: &Table, rest: &str) -> Option<(String, String)> {
    let configured = table.get("provider").and_then(Value::as_table);
    let names =
        configured.into_iter().flat_map(Table::keys).map(String::as_str).chain([super::NAMESPACE, super::LOCAL]);
    let fits = names.filter_map(|name| {
        let plain = name.to_ascii_uppercase().replace(['-', '.'], "_");
        let key = rest.strip_prefix(&plain)?.strip_prefix('_')?;
        (!key.is_empty()).then(|| (name.to_owned(), key.to_ascii_lowercase()))
    });
    fits.max_by_key(|(name, _)| name.len())
}

/// A value as it would be written in the file; what would be nothing there is a text.
fn value(text: &str) -> Value {
    let written = format!("it = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("it"));
    written.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid(text: &str, variables: &[(&str, &str)]) -> Result<Table, ConfigError> {
        let mut table: Table = text.parse().unwrap();
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        lay(&mut table, &variables).map(|()| table)
    }

    #[test]
    fn a_variable_stands_above_the_file() {
        let table = laid(
            "[server]\nlisten = '1.2.3.4:1'\n[provider.big-box]\nkind = 'local'\n[provider.big]\nkind = 'local'\n",
            &[
                ("STEAD_SERVER_LISTEN", "127.0.0.1:9"),
                ("STEAD_SERVER_ALLOWED_HOSTS", "['a']"),
                ("STEAD_SERVER_MAX_CONNECTIONS", "7"),
                ("STEAD_PROVIDER_BIG_BOX_ON_EXIT", "pause"),
                ("STEAD_PROVIDER_NAMESPACE_LIMITS_CPU", "0.5"),
                ("STEAD_DEFAULT_PROVIDER", "big"),
                ("STEAD_THREAD", "other"),
            ],
        );
        let expected = "default_provider = 'big'\n[server]\nlisten = '127.0.0.1:9'\nallowed_hosts = ['a']\n\
                        max_connections = 7\n[provider.big-box]\nkind = 'local'\non_exit = 'pause'\n\
                        [provider.big]\nkind = 'local'\n[provider.namespace.limits]\ncpu = 0.5\n";
        assert_eq!(laid_as(table.unwrap()), laid_as(expected.parse().unwrap()));
    }

    #[test]
    fn the_name_of_ours_stands_above_an_alias() {
        let variables = [
            ("STEAD_PROJECTS_MAX_PROJECTS", "7"),
            ("MAX_PROJECTS", "9"),
            ("CONTAINER_STOP_ON_DISCONNECT", "False"),
            ("CONTAINER_RECREATE_ON_RECONNECT", "true"),
        ];
        let table = laid("[projects]\nmax_projects = 5", &variables).unwrap();
        let expected = "[projects]\nmax_projects = 7\nstop_on_disconnect = false\nrecreate_on_reconnect = true";
        assert_eq!(laid_as(table), laid_as(expected.parse().unwrap()));
    }

    #[test]
    fn a_table_of_routes_is_one_variable_and_stands_for_the_whole() {
        let text = "[routes]\n'/old/' = 'store'";
        let json = r#"{"/workspace/": {"type": "filesystem"}, "/m/": "store"}"#;
        let expected = "[routes]\n'/m/' = 'store'\n[routes.'/workspace/']\ntype = 'filesystem'";
        for name in ["STEAD_ROUTES", "AGENT_BACKEND_ROUTES"] {
            assert_eq!(laid_as(laid(text, &[(name, json)]).unwrap()), laid_as(expected.parse().unwrap()));
            assert_eq!(laid_as(laid(text, &[(name, " ")]).unwrap()), laid_as(text.parse().unwrap()), "empty is unset");
            for (wrong, named) in
                [("{", name), ("[]", name), (r#"{"/m/": "disk"}"#, "/m/"), (r#"{"m": "store"}"#, "`m`")]
            {
                let error = laid("", &[(name, wrong)]).unwrap_err().to_string();
                assert!(error.contains(named) && error.contains(name), "{error}");
            }
        }
    }

    fn laid_as(table: Table) -> String {
        let json: serde_json::Value = table.try_into().unwrap();
        json.to_string()
    }

    #[test]
    fn a_variable_that_names_no_provider_is_refused() {
        let error = laid("", &[("STEAD_PROVIDER_NOBODY_KIND", "local")]).unwrap_err();
        assert!(error.to_string().contains("STEAD_PROVIDER_NOBODY_KIND"), "{error}");
    }
}
