//! Settings from the environment: `STEAD_<SECTION>_<NAME>` stands above the file. One that names no setting is refused
//! like one in the file.

use super::ConfigError;
use toml::{Table, Value};

const SERVER: &str = "STEAD_SERVER_";
const PROVIDER: &str = "STEAD_PROVIDER_";
const DEFAULT: &str = "STEAD_DEFAULT_PROVIDER";

/// Puts variables over what a file says. `table` is changed; a variable of another section is somebody else's.
pub(super) fn lay(table: &mut Table, variables: &[(String, String)]) -> Result<(), ConfigError> {
    for (variable, text) in variables {
        let wrong = |message: &str| ConfigError::Setting {
            file: "the environment".to_owned(),
            key: variable.clone(),
            message: message.to_owned(),
        };
        if variable == DEFAULT {
            table.insert("default_provider".to_owned(), Value::String(text.clone()));
        } else if let Some(name) = variable.strip_prefix(SERVER) {
            let place =
                section(table, &["server".to_owned()]).ok_or_else(|| wrong("`server` is no section in the file"))?;
            place.insert(name.to_ascii_lowercase(), value(text));
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
