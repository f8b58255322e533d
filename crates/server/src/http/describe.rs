//! The last touches to the description, which are the same everywhere: what a name in a path looks like, and that a body
//! without anything necessary in it may be left out.

use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{Components, OpenApi, Ref, RefOr, Required, Schema};

/// As `stead_model::ids` has it.
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$";

/// Places whose names are ids of ours.
const PLACES: [&str; 6] =
    ["/api/threads/", "/api/commands/", "/api/terminals/", "/api/leases/", "/api/orphans/", "/api/tokens/"];

/// One event of a stream, as its client sees it: `data` is JSON.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StreamEvent {
    /// Its sequence number, from 1 without holes.
    id: Option<String>,
    /// `start`, `stdout`, `stderr`, `late`, `exit`, `failed`; `error` ends a stream, not its command.
    event: String,
    data: String,
}

pub(super) fn finish(api: &mut OpenApi) {
    let components = api.components.clone().unwrap_or_default();
    // How a path that goes on is written is the router's affair.
    let paths = std::mem::take(&mut api.paths.paths);
    api.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    for (path, item) in &mut api.paths.paths {
        let ours = PLACES.iter().any(|place| path.starts_with(place));
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            if ours {
                name_ids(operation);
            }
            allow_nothing(operation, &components);
        }
    }
}

fn name_ids(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(Parameter { name, parameter_in: ParameterIn::Path, schema: Some(schema), .. }) = parameter
            && ["id", "instance"].contains(&name.as_str())
            && let RefOr::T(Schema::Object(object)) = schema
        {
            object.pattern = Some(NAME.to_owned());
        }
    }
}

fn allow_nothing(operation: &mut Operation, components: &Components) {
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    let json = match body.content.get("application/json") {
        Some(RefOr::T(content)) => content.schema.as_ref(),
        Some(RefOr::Ref(_)) | None => None,
    };
    let needs_nothing = match json {
        Some(RefOr::Ref(Ref { ref_location, .. })) => {
            let name = ref_location.rsplit('/').next().unwrap_or_default();
            matches!(components.schemas.get(name), Some(RefOr::T(Schema::Object(object))) if object.required.is_empty())
        }
        Some(RefOr::T(_)) | None => false,
    };
    if needs_nothing {
        body.required = Some(Required::False);
    }
}
