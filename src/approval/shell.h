/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The commands of a text for bash, in a form that can be shown, matched by rules and granted:
 * one shell_command for each simple command, also inside substitutions, functions and texts
 * within the text (`bash -c`, `eval`, `trap`).
 *
 * The text is parsed by `shfmt --to-json` in a box (session/host_parse.c). This is the reader
 * of its tree. It knows every kind of node: a tree with an unknown kind is not understood, and
 * then the text needs approval as a whole. Numbers of operators differ between versions of
 * shfmt; the operators are read from the text. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { SHELL_TEXT_MAX = 64 << 10, SHELL_TREE_MAX = 8 << 20 };

/* Whether a command assigns variables. Once a variable was declared as an integer or as a
 * reference (`declare -i n`), bash runs code in what is assigned to it. The reader knows one
 * text and no variables: its caller remembers shell_forms.marks for the shell. In such a shell
 * each assignment is asked, and no approval of one lasts. The same holds for a variable that is
 * exported: a later assignment reaches programs. */
enum shell_assigning {
    SHELL_ASSIGNS_NOT,
    SHELL_ASSIGNS,      /* it needs approval in every shell */
    SHELL_ASSIGNS_ONLY, /* it needs approval only in a marked shell, or in a text that marks it
                         */
};

/* A word is a string, or {"dynamic": SOURCE} when its value is known only at run time. */
struct shell_command {
    json_t *argv;
    json_t *grant;        /* what a lasting approval covers: argv, or "*" for words that vary */
    json_t *redirections; /* of files: ">out" */
    json_t *files;        /* that it writes, as far as its words name them */
    char *cwd;            /* the `cd` commands before it, "" for none */
    const char *danger;   /* category (shell_danger.c), or NULL */
    bool is_once;         /* no approval of it can last */
    bool is_ordinary;     /* it only reads; which files it reads may vary */
    char *name;           /* of the variable that it only assigns, or NULL */
    enum shell_assigning assigning;
};

struct shell_forms {
    struct shell_command *items;
    size_t count;
    bool reads_code; /* a shell or interpreter in it takes its program from stdin */
    bool marks;      /* it may declare integers or references */
    json_t *exports; /* a member for each variable that programs get from now on, or NULL */
};
void shell_forms_done(struct shell_forms *forms);

/* Parses a text; 0, or negative errno when there is no tree. The caller owns *ret. */
typedef int shell_parse(void *context, const char *text, size_t len, json_t **ret);

/* 0, or -EBADMSG when the text cannot be parsed or its tree is not understood, and -E2BIG when
 * it has too many commands: then the whole text must be asked. `parse` is called for the text
 * and for texts in it. `directory` is where the shell is, "" when that is not known. */
int shell_read(const char *text, size_t len, const char *directory, shell_parse *parse,
    void *context, struct shell_forms *ret);

/* Whether a variable changes what programs do, such as PATH and LD_PRELOAD, or how bash reads a
 * text. A value that is not known is NULL. */
bool shell_variable_is_special(const char *name, size_t len, const char *value);
/* The same for NAME=VALUE. */
bool shell_word_sets_special(const char *word);
