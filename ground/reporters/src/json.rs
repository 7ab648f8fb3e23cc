//! Trees as JSON, for `--json` and for the page.
//!
//! ```text
//!   {"version":1,"notes":[…],"processes":[{"process","overclaimed_bytes","is_difference",
//!     "trees":[{"name","amount","units","kids":[…]}]}]}
//! ```
//!
//! B1  A leaf has `description`, `kind` (0 nonheap, 1 heap, 2 other) and `lines`; a branch has `kids`, whose amounts
//!     add up to its own. Only differences have `presence`: 1 first, 2 second.
//! B2  An amount of more than 64 bits is written as a floating-point number: no sum is left out.
//!
//! Not here: the file of about:memory (`file`).

use serde_json::{Value, json};

use crate::entry::Units;
use crate::tree::{Node, Process};

/// Returns the JSON of all processes and notes.
pub fn render(processes: &[Process], notes: &[String]) -> Value {
    let one = |process: &Process| {
        json!({
            "process": process.name,
            "overclaimed_bytes": process.overclaimed,
            "is_difference": process.is_difference,
            "trees": process.trees.iter().map(node).collect::<Vec<Value>>(),
        })
    };
    json!({
        "version": 1,
        "notes": notes,
        "processes": processes.iter().map(one).collect::<Vec<Value>>(),
    })
}

fn node(node: &Node) -> Value {
    let units = match node.units {
        Units::Bytes => "bytes",
        Units::Count => "count",
        Units::Cumulative => "cumulative",
        Units::Percent => "hundredths-of-a-percent",
    };
    let amount = i64::try_from(node.amount).map_or_else(|_| json!(node.amount as f64), Value::from);
    let mut value = json!({ "name": node.name, "amount": amount, "units": units });
    if node.kids.is_empty() {
        value["description"] = json!(node.description);
        value["kind"] = json!(node.kind as u8);
        value["lines"] = json!(node.lines);
        if let Some(number) = node.presence.number() {
            value["presence"] = json!(number);
        }
    } else {
        value["kids"] = node.kids.iter().map(self::node).collect();
    }
    value
}
