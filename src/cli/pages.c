/* pages.c: --help, completions for shells and the man page, all made from the tables of commands.c. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

bool cli_accepts(const Command *c, const OptionRow *o)
{
  return strchr(c->accepts, o->letter) || (c->also && strchr(c->also, o->letter));
}

/* The row of the i-th letter, at or behind `from` (a letter may have several rows); noptions: there is none. */
static int find_row(char letter, int from)
{
  while (from < cli_noptions && cli_options[from].letter != letter) from++;
  return from;
}

/* ---- help ------------------------------------------------------------------------------- */

enum { WIDTH = 100 };

static int letters(const char *s, size_t n)
{
  int count = 0;
  for (size_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xC0) != 0x80;
  return count;
}

/* Words from column `at` on; further lines begin at `indent`. */
static void print_wrapped(FILE *out, const char *text, int at, int indent)
{
  for (bool first = true; *text; first = false) {
    size_t n = strcspn(text, " ");
    int wide = letters(text, n);
    if (!first && at + 1 + wide > WIDTH) {
      fprintf(out, "\n%*s", indent, "");
      at = indent;
    } else if (!first) {
      fputc(' ', out);
      at++;
    }
    fwrite(text, 1, n, out);
    at += wide;
    text += n;
    while (*text == ' ') text++;
  }
  fputc('\n', out);
}

void cli_print_usage(FILE *out)
{
  fprintf(out, "usage: lathe COMMAND …\n\nLathe %s, a machine-learning compiler.\n\n", lathe_version());
  for (int i = 0; i < cli_ncommands; i++) fprintf(out, "  %-11s %s\n", cli_commands[i].name, cli_commands[i].summary);
  fputs("\n'lathe COMMAND --help' or 'lathe help COMMAND' shows the options with examples; 'lathe --version' the "
        "version.\n\nexit status:\n",
        out);
  for (const Fact *f = cli_exit_states; f->name; f++) fprintf(out, "  %s  %s\n", f->name, f->doc);
  fputs("environment:\n", out);
  for (const Fact *f = cli_environment; f->name; f++) fprintf(out, "  %s  %s\n", f->name, f->doc);
}

/* Each option that the letters name, by `each`. */
static void each_option(const char *which, void (*each)(const OptionRow *, void *), void *user)
{
  for (; which && *which; which++)
    for (int i = find_row(*which, 0); i < cli_noptions; i = find_row(*which, i + 1)) each(&cli_options[i], user);
}

static void print_option(const OptionRow *o, void *user)
{
  enum { COLUMN = 30 };
  (void)user;
  int wide = 2 + (int)strlen(o->name) + (o->value ? 1 + letters(o->value, strlen(o->value)) : 0);
  printf("  %s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
  if (wide + 2 > COLUMN) printf("\n%*s", COLUMN, "");
  else printf("%*s", COLUMN - wide, "");
  print_wrapped(stdout, o->doc, COLUMN, COLUMN);
}

static void print_name(const OptionRow *o, void *user)
{
  bool *first = user;
  printf("%s%s", *first ? "" : ", ", o->name);
  *first = false;
}

void cli_print_help(const Command *c)
{
  printf("usage: lathe %s %s\n\n", c->name, c->usage);
  print_wrapped(stdout, c->about, 0, 0);
  if (*c->accepts) putchar('\n');
  each_option(c->accepts, print_option, NULL);
  if (c->also) {
    bool first = true;
    fputs("\nA model file is compiled first, with these options of 'lathe compile':\n  ", stdout);
    each_option(c->also, print_name, &first);
    putchar('\n');
  }
  fputs("\nexamples:\n", stdout);
  for (const char *p = c->examples; *p; p += strcspn(p, "\n") + 1) printf("  %.*s\n", (int)strcspn(p, "\n"), p);
}

/* ---- completion --------------------------------------------------------------------------- */

static bool is(const char *a, const char *b) { return a && !strcmp(a, b); }

/* The names of passes and of config keys, asked of the program when they are wanted. */
#define PASSES "$(lathe opt --list 2>/dev/null | sed -n '/^config/q; s/^  \\([^ ]*\\) .*/\\1/p')"
#define CONFIGS "$(lathe opt --list 2>/dev/null | sed '1,/^config/d; s/^  \\([^ ]*\\) .*/\\1=/')"

static void bash_option(const OptionRow *o, void *user)
{
  const char *command = user;
  if (!o->value) return;
  printf("    '%s %s') ", command, o->name);
  if (!o->takes) fputs("return", stdout);
  else if (is(o->takes, TAKES_FILE)) fputs("COMPREPLY=($(compgen -f -- \"$cur\")); return", stdout);
  else if (is(o->takes, TAKES_DIR)) fputs("COMPREPLY=($(compgen -d -- \"$cur\")); return", stdout);
  else
    printf("COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return", is(o->takes, TAKES_PASS)     ? PASSES
                                                                   : is(o->takes, TAKES_CONFIG) ? CONFIGS
                                                                                                : o->takes);
  puts(" ;;");
}

static void bash_name(const OptionRow *o, void *user)
{
  (void)user;
  printf(" %s", o->name);
}

static void print_bash(void)
{
  puts("# Completion of lathe's command line in bash; made by 'lathe completion bash'.\n_lathe()\n{\n"
       "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD - 1]}\" command=\"${COMP_WORDS[1]}\" "
       "words=\n"
       "  COMPREPLY=()\n"
       "  # --form=c is three words to bash\n"
       "  if [ \"$cur\" = = ]; then cur=; elif [ \"$prev\" = = ]; then prev=\"${COMP_WORDS[COMP_CWORD - 2]}\"; fi");
  fputs("  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    COMPREPLY=($(compgen -W 'help --help --version", stdout);
  for (int i = 0; i < cli_ncommands; i++) printf(" %s", cli_commands[i].name);
  puts("' -- \"$cur\"))\n    return\n  fi");
  fputs("  if [ \"$command\" = help ]; then\n    COMPREPLY=($(compgen -W '", stdout);
  for (int i = 0; i < cli_ncommands; i++) printf("%s%s", i ? " " : "", cli_commands[i].name);
  puts("' -- \"$cur\"))\n    return\n  fi\n  case \"$command $prev\" in");
  for (int i = 0; i < cli_ncommands; i++) {
    void *name = (void *)(uintptr_t)cli_commands[i].name;
    each_option(cli_commands[i].accepts, bash_option, name);
    each_option(cli_commands[i].also, bash_option, name);
  }
  puts("  esac\n  case \"$command\" in");
  for (int i = 0; i < cli_ncommands; i++) {
    const Command *c = &cli_commands[i];
    printf("    %s) words='--help", c->name);
    each_option(c->accepts, bash_name, NULL);
    each_option(c->also, bash_name, NULL);
    printf("'");
    if (c->input && !is(c->input, TAKES_FILE)) printf("; [[ $cur == -* ]] || words='%s'", c->input);
    puts(" ;;");
  }
  puts("  esac\n"
       "  case \"$command\" in");
  for (int i = 0; i < cli_ncommands; i++)
    if (is(cli_commands[i].input, TAKES_FILE))
      printf("    %s) [[ $cur == -* ]] || { COMPREPLY=($(compgen -f -- \"$cur\")); return; } ;;\n",
             cli_commands[i].name);
  puts("  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o filenames -F _lathe lathe");
}

/* Text between single quotes of a shell; zsh's _arguments also wants colons and brackets kept apart. */
static void print_quoted(const char *s, bool zsh)
{
  for (; *s; s++) {
    if (*s == '\'') fputs("'\\''", stdout);
    else if (zsh && strchr(":[]", *s)) printf("\\%c", *s);
    else putchar(*s);
  }
}

static void zsh_option(const OptionRow *o, void *user)
{
  (void)user;
  printf("        '%s%s%s[", o->kind == MANY ? "*" : "", o->name, o->value ? (o->name[1] == '-' ? "=" : "+") : "");
  print_quoted(o->doc, true);
  putchar(']');
  if (o->value) {
    putchar(':');
    print_quoted(o->value, true);
    putchar(':');
    if (is(o->takes, TAKES_FILE)) fputs("_files", stdout);
    else if (is(o->takes, TAKES_DIR)) fputs("_files -/", stdout);
    else if (is(o->takes, TAKES_PASS)) fputs("_lathe_passes", stdout);
    else if (is(o->takes, TAKES_CONFIG)) fputs("_lathe_configs", stdout);
    else if (o->takes) printf("(%s)", o->takes);
  }
  puts("' \\");
}

static void print_zsh(void)
{
  puts("#compdef lathe\n# Completion of lathe's command line in zsh; made by 'lathe completion zsh'.\n"
       "_lathe_passes() { compadd -- ${(f)\"" PASSES "\"}; }\n"
       "_lathe_configs() { compadd -S '' -- ${(f)\"" CONFIGS "\"}; }\n"
       "_lathe()\n{\n  local -a commands\n  commands=(");
  for (int i = 0; i < cli_ncommands; i++) {
    printf("    '%s:", cli_commands[i].name);
    print_quoted(cli_commands[i].summary, true);
    puts("'");
  }
  puts("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
       "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in");
  for (int i = 0; i < cli_ncommands; i++) {
    const Command *c = &cli_commands[i];
    printf("    %s)\n      _arguments \\\n", c->name);
    each_option(c->accepts, zsh_option, NULL);
    each_option(c->also, zsh_option, NULL);
    if (is(c->input, TAKES_FILE)) puts("        '1:file:_files' \\");
    else if (c->input) printf("        '1:which:(%s)' \\\n", c->input);
    puts("        '--help[shows the options]' ;;");
  }
  puts("    help) _describe command commands ;;\n  esac\n}\n_lathe \"$@\"");
}

static void fish_option(const OptionRow *o, void *user)
{
  const char *command = user;
  printf("complete -c lathe -n '__fish_seen_subcommand_from %s' %s %s", command, o->name[1] == '-' ? "-l" : "-s",
         o->name + (o->name[1] == '-' ? 2 : 1));
  if (o->value && is(o->takes, TAKES_FILE)) fputs(" -r -F", stdout);
  else if (o->value) fputs(" -x", stdout);
  if (is(o->takes, TAKES_DIR)) fputs(" -a '(__fish_complete_directories)'", stdout);
  else if (is(o->takes, TAKES_PASS)) fputs(" -a '(__lathe_passes)'", stdout);
  else if (is(o->takes, TAKES_CONFIG)) fputs(" -a '(__lathe_configs)'", stdout);
  else if (o->takes && *o->takes != '<') printf(" -a '%s'", o->takes);
  fputs(" -d '", stdout);
  print_quoted(o->doc, false);
  puts("'");
}

static void print_fish(void)
{
  puts("# Completion of lathe's command line in fish; made by 'lathe completion fish'.\n"
       "function __lathe_passes\n  lathe opt --list 2>/dev/null | sed -n '/^config/q; s/^  \\([^ ]*\\) .*/\\1/p'\nend\n"
       "function __lathe_configs\n  lathe opt --list 2>/dev/null | sed '1,/^config/d; s/^  \\([^ ]*\\) .*/\\1=/'\nend");
  for (int i = 0; i < cli_ncommands; i++) {
    const Command *c = &cli_commands[i];
    printf("complete -c lathe -n __fish_use_subcommand -f -a %s -d '", c->name);
    print_quoted(c->summary, false);
    puts("'");
    each_option(c->accepts, fish_option, (void *)(uintptr_t)c->name);
    each_option(c->also, fish_option, (void *)(uintptr_t)c->name);
    if (c->input && !is(c->input, TAKES_FILE))
      printf("complete -c lathe -n '__fish_seen_subcommand_from %s' -f -a '%s'\n", c->name, c->input);
  }
}

int cli_run_completion(LatheContext *context, const Options *o)
{
  (void)context;
  static const struct {
    const char *name;
    void (*print)(void);
  } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
  for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
    if (!strcmp(shells[i].name, o->input)) {
      shells[i].print();
      return 0;
    }
  return cli_misuse("there is completion for bash, zsh and fish, not for '%s'", o->input);
}

/* ---- the man page ---------------------------------------------------------------------------- */

/* Text for troff: backslashes, hyphens that are to stay hyphens, lines that would be requests. */
static void print_roff(const char *s)
{
  if (*s == '.' || *s == '\'') fputs("\\&", stdout);
  for (; *s; s++) {
    if (*s == '\\') fputs("\\e", stdout);
    else if (*s == '-') fputs("\\-", stdout);
    else putchar(*s);
    if (*s == '\n' && (s[1] == '.' || s[1] == '\'')) fputs("\\&", stdout);
  }
}

static void man_option(const OptionRow *o, void *user)
{
  (void)user;
  fputs(".TP\n\\fB", stdout);
  print_roff(o->name);
  fputs("\\fR", stdout);
  if (o->value) {
    fputs(" \\fI", stdout);
    print_roff(o->value);
    fputs("\\fR", stdout);
  }
  putchar('\n');
  print_roff(o->doc);
  putchar('\n');
}

static void man_command(const Command *c)
{
  printf(".SS lathe %s\n.B lathe %s\n", c->name, c->name);
  if (*c->usage) {
    print_roff(c->usage);
    putchar('\n');
  }
  puts(".PP");
  print_roff(c->about);
  putchar('\n');
  each_option(c->accepts, man_option, NULL);
  if (c->also) {
    puts(".PP\nA model file is compiled first, with these options of");
    fputs(".BR \"lathe compile\" :\n", stdout);
    for (const char *p = c->also; *p; p++)
      for (int i = find_row(*p, 0); i < cli_noptions; i = find_row(*p, i + 1)) {
        print_roff(cli_options[i].name);
        puts(p[1] ? "," : ".");
      }
  }
  puts(".PP\nExamples:\n.PP\n.RS 4\n.nf");
  print_roff(c->examples);
  puts(".fi\n.RE");
}

static void man_facts(const char *title, const Fact *f)
{
  printf(".SH %s\n", title);
  for (; f->name; f++) {
    printf(".TP\n\\fB%s\\fR\n", f->name);
    print_roff(f->doc);
    putchar('\n');
  }
}

int cli_run_man(LatheContext *context, const Options *o)
{
  (void)context, (void)o;
  printf(".TH LATHE 1 \"\" \"Lathe %s\" \"User Commands\"\n.SH NAME\nlathe \\- a machine\\-learning compiler\n"
         ".SH SYNOPSIS\n.B lathe\n.I COMMAND\n\\&...\n.SH DESCRIPTION\n"
         "An ONNX model goes in; one file comes out that holds code, weights and everything a run needs,\n"
         "and that a small runtime loads from C, Python or the command line.\n.SH COMMANDS\n",
         lathe_version());
  for (int i = 0; i < cli_ncommands; i++) man_command(&cli_commands[i]);
  man_facts("EXIT STATUS", cli_exit_states);
  man_facts("ENVIRONMENT", cli_environment);
  return 0;
}
