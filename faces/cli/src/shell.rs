//! `skinflint completions` and `skinflint man`: what shells and `man` want to know, out of the commands themselves.
//!
//! ```text
//!   args::command() ─► clap_complete ─► bash, zsh, fish
//!                   ├► clap_mangen ───► skinflint.1, skinflint-run.1 …
//!                   └► its long help ─► docs/commands.md
//! ```
//!
//! H1  Nothing is written by hand: what help says, the pages and completions say.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, Command};
use clap_complete::Shell;

pub const COMPLETIONS_HELP: &str = "\
Examples:
  skinflint completions bash > ~/.local/share/bash-completion/completions/skinflint
  skinflint completions zsh > ~/.zfunc/_skinflint
  skinflint completions fish > ~/.config/fish/completions/skinflint.fish";

pub const MAN_HELP: &str = "\
Examples:
  skinflint man run | man -l -
  skinflint man --dir ~/.local/share/man/man1
  skinflint man --markdown > commands.md";

/// What stands above the commands in Markdown.
const MARKDOWN_HEAD: &str = "\
# Commands

This chapter is what the program says of itself: `skinflint man --markdown` prints it, `make docs` writes it, and the tests hold
that it is up to date. `skinflint help COMMAND` prints the same on a terminal, `skinflint man COMMAND` as a manual page.
";

/// How wide a terminal the help in Markdown is made for.
const MARKDOWN_COLUMNS: usize = 100;

#[derive(ClapArgs, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(ClapArgs, Debug)]
pub struct ManArgs {
    /// The command [default: the page of skinflint itself]
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,

    /// Write the pages of all commands into this folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    pub dir: Option<PathBuf>,

    /// Print the help of all commands as one file of Markdown instead
    #[arg(long, conflicts_with_all = ["command", "dir"])]
    pub markdown: bool,
}

/// Prints a shell's completions.
///
/// # Errors
/// If stdout cannot be written.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "skinflint", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(0)
}

/// Prints a manual page, or writes all of them.
///
/// # Errors
/// If there is no such command, or a page cannot be written.
pub fn man(args: &ManArgs, command: Command) -> Result<u8> {
    if args.markdown {
        io::stdout()
            .lock()
            .write_all(markdown(command).as_bytes())?;
        return Ok(0);
    }
    let mut pages = pages(command);
    if let Some(folder) = &args.dir {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for page in pages {
            let name = page.get_name().to_owned();
            write_page(&page, &folder.join(format!("{name}.1")))?;
        }
        return Ok(0);
    }
    let wanted = match &args.command {
        Some(command) => format!("skinflint-{command}"),
        None => "skinflint".to_owned(),
    };
    let Some(at) = pages.iter().position(|page| page.get_name() == wanted) else {
        bail!("{wanted}: no such page; `skinflint help` lists the commands");
    };
    let roff = roff(&pages.swap_remove(at))?;
    io::stdout().lock().write_all(&roff)?;
    Ok(0)
}

/// Returns the program and its commands, each under the name of its page.
fn pages(mut command: Command) -> Vec<Command> {
    command = command.disable_help_subcommand(true);
    command.build();
    let commands: Vec<Command> = command.get_subcommands().cloned().collect();
    let mut pages = vec![command];
    for command in commands {
        let (name, shown) = (
            format!("skinflint-{}", command.get_name()),
            format!("skinflint {}", command.get_name()),
        );
        // Clap wants names that live as long as the program; there are some thirty.
        let name: &'static str = Box::leak(name.into_boxed_str());
        pages.push(
            command
                .name(name)
                .display_name(name)
                .bin_name(shown)
                .version(env!("CARGO_PKG_VERSION")),
        );
    }
    pages
}

fn roff(page: &Command) -> Result<Vec<u8>> {
    let mut roff = Vec::new();
    clap_mangen::Man::new(page.clone()).render(&mut roff)?;
    Ok(roff)
}

fn write_page(page: &Command, file: &Path) -> Result<()> {
    std::fs::write(file, roff(page)?).with_context(|| file.display().to_string())
}

/// Returns the long help of the program and of its commands, a heading each.
fn markdown(command: Command) -> String {
    let mut text = MARKDOWN_HEAD.to_owned();
    for page in pages(command) {
        let title = page.get_bin_name().unwrap_or("skinflint").to_owned();
        let mut page = page.term_width(MARKDOWN_COLUMNS);
        let help = page.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let lines = lines.join("\n");
        text += &format!("\n## {title}\n\n```text\n{}\n```\n", lines.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chapter_of_commands_is_what_help_says() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let chapter = std::fs::read_to_string(file).expect("docs/commands.md");
        let said = markdown(crate::args::command());
        let pairs = chapter.lines().zip(said.lines());
        for (number, (written, said)) in pairs.enumerate() {
            assert_eq!(written, said, "docs/commands.md:{}: make docs", number + 1);
        }
        assert_eq!(chapter.len(), said.len(), "docs/commands.md: make docs");
    }
}
