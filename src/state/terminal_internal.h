/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What terminal_config.c (the section of a file) and terminal_own.c (what a caller adds) share.
 */

#include "state/place_table.h"
#include "state/terminal_config.h"

#include <yaml.h>

enum { DEPTH_MAX = 16, EVENTS_MAX = 20000, VALUE_MAX = 4096 };

enum { LOCAL = 1, SSH = 2, DOCKER = 4, APPTAINER = 8, MODAL = 16, DAYTONA = 32 };
enum { CONTAINERS = DOCKER | APPTAINER | MODAL | DAYTONA, EVERY = 63 };

enum form {
    TEXT,
    LIST,     /* items are joined with commas */
    PATH,     /* ~ and relative ones have no meaning for a server */
    LIMIT,    /* 0: the default of Hermes */
    NETWORK,  /* true: bridge */
    NOT_TRUE, /* exists for a caller's own directory only */
    SHELL,    /* yes or no; variables of the caller name it for one place */
    UNUSED,
};

struct terminal_place {
    const char *name; /* of a backend and in `backend:` */
    const char *kind;
    unsigned bit;
};
enum { PLACES = 6 };
extern const struct terminal_place terminal_places[];

struct terminal_row {
    const char *key;
    enum form form;
    unsigned places;  /* bits */
    const char *line; /* of a section [backend NAME] */
    bool names_place; /* a file with this key sets that place up */
};
enum { ROWS = 43, KEYS_ROW = 1 };
extern const struct terminal_row terminal_rows[];

struct reading {
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    unsigned events, depth;
    struct strv *problems, *notes;
    char *values[ROWS]; /* NULL: not in the file */
    char *backend;
    char *flow; /* the list of a variable */
    bool is_bad;
    const struct terminal_caller *caller; /* NULL: a server reads the file of its operator */
    struct terminal_own *own;             /* with a caller */
};

/* The next event; false at the end, and when something is wrong. */
bool terminal_next(struct reading *r);
char *terminal_take_list(struct reading *r, const char *key);

/* Parses `text` with `take`. */
void terminal_parse(
    struct reading *r, const char *text, size_t len, void (*take)(struct reading *r));
void terminal_take_document(struct reading *r);
void terminal_add_places(struct reading *r, struct place_table *table);
void terminal_reading_done(struct reading *r);

bool terminal_is_true(const char *value);
bool terminal_is_bool(const char *value); /* whether it says yes or no */
const char *terminal_value(const struct reading *r, const char *key);
size_t terminal_find_place(const char *name); /* PLACES: there is none of this name */

/* Sets one line of the place's section. `key` is its name for messages. */
bool terminal_set_line(struct reading *r, struct place_table *table, size_t place,
    const char *key, const char *line, const char *value);

/* terminal_own.c, for readings with a caller. */
bool own_sets(const char *line); /* own_add_lines() sets it; the line of the file is void */
void own_add_lines(struct reading *r, struct place_table *table, size_t place);
void own_check(struct reading *r, const char *key, const char *value);
unsigned own_choose(struct reading *r, unsigned wanted); /* of the places that the file names */
