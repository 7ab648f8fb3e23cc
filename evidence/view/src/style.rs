//! The style of the screen: its size, colour, and what is said about files.
//!
//! ```text
//!   Style ──► text (the fixed parts) ──► advice (the room that is left)
//! ```
//!
//! Not here: what a terminal offers (the caller asks it).

/// The style of the screen.
#[derive(Clone, Debug)]
pub struct Style {
    /// The number of columns; values from 60 to 200 are used.
    pub width: usize,
    /// The number of lines to keep to if possible; the fixed parts are always printed.
    pub height: usize,
    /// Whether to use colour.
    pub color: bool,
    /// Show every frame of every finding, and every finding, at whatever length.
    pub full_stacks: bool,
    /// The path of the trace.
    pub trace: Option<String>,
    /// The path of the HTML report.
    pub html: Option<String>,
}

impl Default for Style {
    fn default() -> Self {
        Style {
            width: 100,
            height: 53,
            color: false,
            full_stacks: false,
            trace: None,
            html: None,
        }
    }
}
