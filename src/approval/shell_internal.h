/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of shell.h:
 *
 *   shell_word.c     words of the tree
 *   shell_tree.c     the walk over the tree
 *   shell_value.c    arithmetic, parameters, assignments, tests
 *   shell_known.c    words that only the text decides
 *   shell_redirect.c redirections and here-documents
 *   shell_command.c  one simple command: its wrappers, its directory
 *   shell_special.c  shells, builtins, and others with a text in their words
 *   shell_emit.c     what is emitted for a command
 *   shell_wrapper.c  table: programs that run the command behind their own words
 *   shell_script.c   which scripts of sed only edit
 *   shell_path.c     paths; tables: secrets, files that decide about rights
 *   shell_danger.c   tables: dangerous commands, variables
 *   shell_ordinary.c tables: ordinary and free commands */

#include "approval/shell.h"

/* Stands in a shape for text that is known only when the command runs. */
#define SHELL_UNKNOWN '\x01'

enum {
    SHELL_LEVELS_MAX = 400, /* of the tree */
    SHELL_PLACE_MAX = 1024, /* bytes of a directory: each word is looked at in it */
};

struct shell_word {
    char *shape;           /* the value, with SHELL_UNKNOWN and unexpanded globs, ~ for $HOME */
    char *source;          /* as it is written */
    bool is_literal;       /* shape is the value */
    bool is_single;        /* it stays one word */
    bool is_open;          /* a variable in it may have any value */
    const char *directory; /* in which it is a path: absolute, below ~, or NULL when unknown */
};

struct shell_words {
    struct shell_word *items;
    size_t count;
};
void shell_words_add(struct shell_words *words, const struct shell_word *word); /* copies */
void shell_words_done(struct shell_words *words);
json_t *shell_word_json(const struct shell_word *word);

/* The redirections of one statement. */
struct shell_redirs {
    json_t *list;
    json_t *files;
    struct shell_words targets; /* of files that are written */
    bool is_open;               /* one of them has a word that is */
    bool has_text;              /* a here-document or here-string */
    bool reads_secret;
    char *input; /* the literal text that becomes stdin, or NULL */
};

/* A `for` loop over words of the text. */
struct shell_loop {
    char *name; /* NULL: nothing is known about it */
    char *source;
    bool is_open; /* a text in its body may set the variable */
    struct shell_loop *outer;
};

struct shell_walk {
    const char *text;
    size_t len;
    shell_parse *parse;
    void *context;
    struct shell_forms *forms;
    struct shell_words prefix; /* words of the commands that run this text */
    bool is_wrapped;           /* one of them is more than a shell */
    const char *danger;        /* of these commands, or NULL */
    struct shell_loop *loop;   /* the innermost, or NULL */
    char *cwd;
    const char *directory; /* as far as it is known, or NULL; "" is where the text begins */
    json_t *kept;          /* directories that words point to */
    bool is_fed;           /* the input is text, or what any ordinary command reads */
    bool is_export;        /* these are the words of an export */
    bool is_sensitive;     /* the directory has files that decide about rights */
    bool is_lost;          /* the directory is not clear, so no approval lasts */
    bool is_deferred; /* the text runs later: none of its commands is free (shell_ordinary.c) */
    size_t outputs;   /* commands so far that write text of the exec, or what they read */
    unsigned depth;   /* texts in texts */
    unsigned texts;   /* so far */
    size_t nodes;     /* visited, so far */
};

/* The bytes of the text that a node covers; NULL when its positions are not valid. */
const char *shell_source(const struct shell_walk *w, const json_t *node, size_t *ret_len);
/* A position in the text, or -1. */
long shell_offset(const struct shell_walk *w, const json_t *node, const char *which);

/* Fills in a word; -EBADMSG when it is not understood. */
int shell_word_read(const struct shell_walk *w, const json_t *node, struct shell_word *ret);
/* Only the shape of a word; NULL when it is not understood. */
char *shell_word_shape(const struct shell_walk *w, const json_t *node);
/* Makes a literal word that is not in the text. */
void shell_word_set(struct shell_word *ret, const char *value);

/* Walks a text that is an argument of a command, as in `eval TEXT` or `sh -c TEXT`. `prefix`
 * has the words before it. `inside` says which shell runs the text: this one at once, this one
 * later, another one, or one that a wrapper starts. */
enum shell_inside { SHELL_SAME, SHELL_LATER, SHELL_OTHER, SHELL_WRAPPED };
int shell_walk_text(struct shell_walk *w, const char *text, const struct shell_word *prefix,
    size_t prefix_count, enum shell_inside inside);

/* The value of a member of a node, or NULL. */
const char *shell_text_of(const json_t *node, const char *member);
/* Adds a command that is known by its source only. */
int shell_emit_source(
    struct shell_walk *w, const char *what, const json_t *node, const char *danger);

/* Visits all members of a node. */
int shell_visit_members(struct shell_walk *w, const json_t *node, unsigned level);

/* --- nodes with values */
int shell_visit_arithmetic(struct shell_walk *w, const json_t *node, unsigned level);
int shell_visit_let(struct shell_walk *w, const json_t *node, unsigned level);
int shell_visit_parameter(struct shell_walk *w, const json_t *node, unsigned level);
int shell_visit_word_loop(struct shell_walk *w, const json_t *node, unsigned level);
int shell_visit_declaration(struct shell_walk *w, const json_t *node, unsigned level);
int shell_visit_binary_test(struct shell_walk *w, const json_t *node, unsigned level);
int shell_visit_unary_test(struct shell_walk *w, const json_t *node, unsigned level);
/* An assignment, also of an array, its elements, or of a name that a loop sets. */
int shell_check_assignment(struct shell_walk *w, const json_t *node, unsigned level);
/* Whether a word is an element of an array whose subscript bash evaluates: a[x]. */
bool shell_is_element(const struct shell_word *word);
/* Adds a value that bash evaluates. */
int shell_emit_evaluation(struct shell_walk *w, const json_t *node);

/* Whether a variable below the node may have been set by an earlier text. */
bool shell_is_open(const struct shell_walk *w, const json_t *node);
/* Enters a `for` clause. The value of its variable is known until shell_loop_end(). */
int shell_loop_begin(struct shell_walk *w, const json_t *node, struct shell_loop *loop);
/* A text of the same shell in the body of the loops may set their variables. */
void shell_loops_are_open(struct shell_walk *w);
void shell_loop_end(struct shell_walk *w, struct shell_loop *loop);
/* Takes the source of a word, and adds the loops that set variables of the word. */
char *shell_source_with_loops(const struct shell_walk *w, const json_t *node, char *source);

/* Reads the redirections of a statement. */
int shell_redirs_read(struct shell_walk *w, const json_t *list, struct shell_redirs *to);
void shell_redirs_done(struct shell_redirs *r);
/* Adds the redirections of a loop, a block and so on; of no command when it is NULL. */
int shell_emit_redirected(
    struct shell_walk *w, const json_t *command, const struct shell_redirs *redirs);
/* Whether the commands from `first` on do no more with their input than to read it. */
bool shell_only_reads(const struct shell_forms *forms, size_t first);

/* One simple command: `assigns` are the variables before it. */
int shell_take(struct shell_walk *w, const struct shell_words *assigns,
    const struct shell_words *words, const struct shell_redirs *redirs);

/* A category that nothing permits is worth more than another. */
const char *shell_stronger(const char *a, const char *b);

/* Adds a command. `danger` may be NULL. */
int shell_emit(struct shell_walk *w, const struct shell_words *words, size_t program,
    const struct shell_redirs *redirs, const char *danger, bool is_once);

/* --- a simple command on its way to what is asked about it */

struct shell_taking {
    struct shell_walk *w;
    const struct shell_redirs *redirs;
    struct shell_words all; /* prefix, variables, words */
    size_t own;             /* where the words after the prefix begin */
    size_t at;              /* the program that is looked at */
    bool is_wrapped;
    bool is_peeled;  /* wrappers stand before it */
    bool is_foreign; /* what it does may differ from what is read: it is shown in exactly its
                        words */
    bool is_done;    /* texts in it have been read instead */
    bool is_once;
    bool is_fed;  /* words of the command come from an input */
    bool assigns; /* variables of this shell */
    const char *danger;
};
/* A command that is not followed: it is asked each time. */
void shell_give_up(struct shell_taking *t, const char *danger);
/* Reads the words from `from` on as one text, joined as eval and ssh do. */
int shell_take_joined(struct shell_taking *t, size_t from, enum shell_inside inside);
/* Looks at the program at t->at: shells, builtins and others that have more than words. */
int shell_take_special(struct shell_taking *t, const char *name);

/* --- wrappers */

struct shell_wrapper {
    const char *names;
    const char *valued;   /* options that take the next word */
    const char *flags;    /* options without one; anything else is not understood */
    unsigned operands;    /* words of its own between options and command */
    bool has_assignments; /* NAME=value may stand before the command */
    bool is_plain;        /* the command runs with the same rights, in the same place */
    const char *shows;    /* NULL, or letters of options with which it runs nothing */
    bool joins;           /* a shell gets the command, its words joined */
};
const struct shell_wrapper *shell_find_wrapper(const char *name);

/* Goes from the wrapper at *at to its command; the end when there is none. */
enum shell_peel { SHELL_PEEL_UNCLEAR, SHELL_PEEL_RUNS, SHELL_PEEL_SHOWS };
enum shell_peel shell_peel(const struct shell_wrapper *row, const struct shell_words *words,
    size_t *at, bool *ret_sets_special);

/* --- tables. `words` begin with the program. */

struct shell_danger_row {
    const char *category; /* "never." begins the categories that nothing permits */
    const char *programs; /* names, with * for any text */
    const char *operands; /* NULL, or patterns: an operand must match one of them */
    const char *options;  /* NULL, or options: one of them must be there */
    const char *paths;    /* the same as `operands`, for operands that are paths */
    const char *example;  /* words that the row is for */
    const char *other;    /* words that it is not for */
};
extern const struct shell_danger_row shell_dangers[];
extern const size_t shell_danger_count;

/* The category of a command, or NULL. */
const char *shell_danger(const struct shell_word *words, size_t count);
/* The category of writing to a file, of reading it, or NULL. */
const char *shell_danger_of_write(const struct shell_word *target);
bool shell_is_secret(const struct shell_word *word);
/* Also for commands that read all of a directory. */
bool shell_may_be_secret(const struct shell_word *word);
/* A directory that is the same each time: no variable, no pattern, no option. */
bool shell_is_steady_path(const struct shell_word *word);

/* Whether a word is a path of a list. Patterns of the shell count as what they may name, or as
 * what they surely name; behind `..` and `:` a path goes on as from the root. */
enum { SHELL_PLACED = 1, SHELL_BEYOND = 2, SHELL_PATTERN = 4, SHELL_SURE_PATTERN = 8 };
bool shell_path_is(const char *list, const struct shell_word *word, unsigned reach);
/* Without doubled slashes, `.` and `..`, and without a slash at its end. */
char *shell_normal_path(const char *path);
bool shell_is_unknown(const struct shell_word *word);
/* The directory after a `cd`, without a target to ~. NULL when it is not known. */
const char *shell_directory_after(struct shell_walk *w, const struct shell_word *target);
/* Keeps a copy as long as the walk; NULL for NULL. */
const char *shell_keep(struct shell_walk *w, const char *text);

#define SHELL_DEVICES                                                                          \
    "/dev/sd* /dev/hd* /dev/vd* /dev/xvd* /dev/nvme* /dev/mmcblk* /dev/md* /dev/dm-* "         \
    "/dev/loop* /dev/nbd* /dev/disk* /dev/rdisk* /dev/mapper/* /dev/disk/*/*"

/* The name of the program, without its directory. */
const char *shell_program(const struct shell_word *word);
bool shell_name_is(const char *name, const char *list);
bool shell_has_option(const struct shell_word *words, size_t count, const char *options);

/* A command that only changes or shows the shell's own state. */
bool shell_is_free(const struct shell_word *words, size_t count);
/* What varies in an ordinary command becomes "*"; NULL when the command is not ordinary. */
json_t *shell_ordinary(const struct shell_word *words, size_t count);
/* A command that only passes its input on, in another form. */
bool shell_is_filter(const struct shell_word *words, size_t count);
/* Whether a script of sed only edits: it runs no command and opens no file. */
bool shell_script_is_plain(const char *script);
/* Adds the files that a command writes. */
void shell_written(
    const struct shell_word *words, size_t count, json_t *files, const char **danger);
