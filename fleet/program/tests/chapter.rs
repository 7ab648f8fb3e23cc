//! The chapter for readers has the tables as they are.
//!
//! ```text
//!   rows.rs ─► run::chapter ─► is in docs/fleet.md, word for word
//! ```

use skinflint_fleet::run::chapter;
use skinflint_fleet_tables::rows::tables;

#[test]
fn the_chapter_has_every_table_as_it_is() {
    let said = include_str!("../../../docs/fleet.md");
    let wanted = chapter();
    assert_eq!(
        wanted.matches("\n| `").count(),
        tables()
            .iter()
            .map(|table| table.columns.len())
            .sum::<usize>()
    );
    for part in wanted.split_inclusive("\n\n") {
        assert!(
            said.contains(part.trim_end()),
            "docs/fleet.md needs what `skinflint fleet schema` prints:\n{part}"
        );
    }
}
