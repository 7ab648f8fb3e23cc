//! The comparison as JSON: the fields of [`model`](crate::model), under their own names.
//!
//! ```text
//!   Comparison ─► { "schema": 1, "machine": {…}, "programs": [ { "columns": [ { "runs": […], "cells": […] } ] } ], … }
//! ```
//!
//! Not here: the meaning of fields (model.rs).

use crate::model::Comparison;

/// Renders the text, with a final line end.
///
/// # Errors
/// If a figure is not a number that JSON knows.
pub fn render(comparison: &Comparison) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(comparison)?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn figures_are_found_under_their_names() {
        let program = testing::program("app", &[("glibc", 4096.0), ("lean", 8192.0)]);
        let text = render(&testing::comparison(vec![program])).expect("numbers");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let column = &json["programs"][0]["columns"][1];
        assert_eq!(column["verdict"]["is"], "measured");
        assert_eq!(column["runs"][0]["figures"]["peak_bytes"], 8192.0);
        assert_eq!(column["cells"][0]["ratio"], 2.0);
        assert_eq!(json["allocators"][0]["version"], "1.2");
    }
}
