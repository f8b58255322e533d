//! Looking into documents that a server sent, and making those that it gets.

use serde_json::Value;

static NOTHING: Value = Value::Null;

pub(crate) trait Fields {
    /// A field of an object; null where there is none.
    fn at(&self, name: &str) -> &Value;

    /// Sets a field of an object.
    fn set(&mut self, name: &str, value: impl Into<Value>);
}

impl Fields for Value {
    fn at(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&NOTHING)
    }

    fn set(&mut self, name: &str, value: impl Into<Value>) {
        if let Self::Object(fields) = self {
            fields.insert(name.to_owned(), value.into());
        }
    }
}
