/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A place is where commands of a session run outside of boxes: a row of the operator's table of
 * backends. hermes-prepare reads the table, hermes-places has it sealed. The server has the
 * rows without addresses and keys, and names a row by its number.
 *
 * The monitor starts hermes-places with a socket at PLACES_FD and sends one packet with
 * PLACES_FDS descriptors: the sealed table, behind it the far shell, and the socket on which
 * requests come. It keeps both ends of that socket, as it does for hermes-reach (reach.h).
 *
 * To open a place the server sends a struct place_request and PLACE_FDS descriptors: a sealed
 * memfd with a struct place_head and words (the directory, then NAME=VALUE for each variable,
 * each ended by a NUL), the box's socket, stdout, stderr and the channel. From then on they are
 * what the spawner's are (spawn.h), with these differences:
 *
 *   EVENT_STARTED  `flags` has a bit for each enum place_limit that is in force
 *   EVENT_FAILED   `flags` is an enum place_error; with PLACE_LIMIT `wait_status` is the enum
 *                  place_limit, or PLACE_LIMITS when the place does not name it
 *   EVENT_PLACE    `flags` is an enum place_state
 *   These two come as a struct place_event, whose words say why.
 *   EVENT_USAGE has no figures: a place reports none. COMMAND_RESTART comes with the words
 *   instead of a package, COMMAND_TERMINAL without a package (terminal.h). COMMAND_FORK and
 *   COMMAND_NETWORK do not exist. */

#include "proto/spawn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum place_kind {
    PLACE_NATIVE,
    PLACE_LOCAL,
    PLACE_SSH,
    PLACE_DOCKER,
    PLACE_PLUGIN,
    PLACE_APPTAINER,
    PLACE_KINDS
};

/* Limits of a whole place: of all that runs in it. */
enum place_limit {
    PLACE_CPUS,      /* thousandths of a CPU */
    PLACE_MEMORY,    /* MiB */
    PLACE_PROCESSES, /* and threads */
    PLACE_DISK,      /* MiB */
    PLACE_LIMITS
};

struct place_limits {
    uint32_t value[PLACE_LIMITS]; /* 0: none */
    /* Bits: the request or the settings name it. A place that cannot enforce such a limit does
     * not open; one that cannot enforce a built-in default opens without it. */
    uint32_t asked;
};

enum place_error {
    PLACE_FINE,
    PLACE_AUTH,
    PLACE_NOT_FOUND,
    PLACE_REFUSED,
    PLACE_LIMIT,
    PLACE_UNREACHABLE, /* the only one that a later attempt can cure */
    PLACE_LOST,        /* the place existed and is gone, with its state */
    PLACE_ERRORS
};

enum place_state { PLACE_READY, PLACE_DEGRADED, PLACE_GONE };

enum { PLACES_FD = 3 };
enum { PLACES_TABLE, PLACES_REQUESTS, PLACES_FDS };
struct place_request {
    uint32_t row;
    uint32_t reserved;
};

enum { PLACE_WORDS, PLACE_SOCKET, PLACE_OUT, PLACE_ERR, PLACE_CHANNEL, PLACE_FDS };

enum {
    PLACE_NAME = 32,
    PLACE_TEXT = 256,
    PLACE_LIST = 1024,
    PLACE_ID = 64,
    PLACE_SAYS = 400, /* of words for people, with their NUL */
    PLACES_MAX = 16,
    PLACE_WORDS_MAX = 1 << 20
};

struct place_event {
    struct spawn_event event;
    char words[PLACE_SAYS]; /* of a process that reads a stranger's bytes: place_words() */
};

/* Begins the words of a request. */
struct place_head {
    struct place_limits limits;
    char owner[PLACE_ID];   /* the name of the caller's key; "" without keys */
    char session[PLACE_ID]; /* its id */
};

struct place_row {
    char name[PLACE_NAME + 1];
    uint64_t given; /* lines that its section has, by state/place_table.c */
    uint32_t kind;  /* enum place_kind */
    uint32_t port;  /* 0: the client's own */
    uint32_t reconnect_s;
    uint32_t is_open;    /* code there reaches the machine it runs on, even if the kind is
                          * isolated */
    uint32_t keeps;      /* container_persistent: the place outlives its sessions */
    uint32_t is_fresh;   /* persistent_shell = no: each command has a new shell */
    uint32_t may_gain;   /* local: setuid programs such as sudo work */
    uint32_t idle_s;     /* a kept place is stopped after this time without a session */
    uint32_t open_s;     /* for finding, resuming or making a place */
    uint32_t lifetime_s; /* after this time the vendor ends a place that was not closed */
    struct place_limits limits; /* maxima, and values of limits that a request lacks */
    char keys[PLACE_TEXT];      /* names of API keys with commas between, or * */
    char cwd[PLACE_TEXT];
    /* From here on: empty in a server. */
    char user[PLACE_TEXT];
    /* ssh */
    char host[PLACE_TEXT];
    char key_file[PLACE_TEXT];
    char known_hosts[PLACE_TEXT];
    char ssh_config[PLACE_TEXT];
    /* docker */
    char socket[PLACE_TEXT];
    char image[PLACE_TEXT];
    char runtime[PLACE_TEXT];
    char network[PLACE_TEXT];
    char volumes[PLACE_LIST];     /* SOURCE:TARGET[:ro] with commas between */
    char forward_env[PLACE_LIST]; /* names with commas between */
    /* NAME=VALUE for the names in forward_env, each ended by a NUL. hermes-prepare fills it
     * in. */
    char forwarded[4 * PLACE_LIST];
    uint32_t forwarded_len;
    /* plug-in */
    char command[PLACE_LIST]; /* words with spaces between */
    char env_file[PLACE_TEXT];
    /* apptainer: where files of kept places are; "": in the home directory */
    char scratch_dir[PLACE_TEXT];
};

struct place_table {
    struct place_row rows[PLACES_MAX];
    uint32_t count;
    uint32_t shell_len;  /* bytes of the far shell, behind the struct place_table */
    char shell_hash[65]; /* SHA-256 of the far shell in hex */
    char instance[33];   /* of this installation: servers of two installations never share a
                          * place */
};

/* "local", "ssh"; NULL for an unknown number. */
const char *place_kind_name(uint32_t kind);
const char *place_error_name(uint32_t error);
const char *place_limit_name(uint32_t limit); /* as in lang/limits.h: "cpus" ... */

/* Makes text that may be a stranger's fit for people: valid UTF-8 in one line, without control
 * characters, escape sequences and marks that turn the direction of writing, cut to `size` with
 * its NUL. `to` may be `from`. Returns its length. */
size_t place_words(char *to, size_t size, const char *from, size_t len);

/* The same between quotation marks, which the text cannot leave: words that are not ours. */
void place_quote(char *to, size_t size, const char *from);

/* Whether places of this kind answer a probe: a request whose session is "". */
bool place_has_probe(uint32_t kind);

/* Which limits places of a kind enforce, as bits: always, and on some machines. */
uint32_t place_enforces(uint32_t kind);
uint32_t place_may_enforce(uint32_t kind);

/* The value of a limit that neither the request nor the settings name; 0: no limit. */
uint32_t place_default_limit(uint32_t kind, uint32_t limit);

/* How a place is isolated from its machine: one word for answers. */
const char *place_isolation(const struct place_row *row);

/* Whose the place is: of one "session", of all sessions of a "key", or a "host" that is there
 * without Hermes and may be used by others. */
const char *place_scope(const struct place_row *row);

/* For opening a place, before the far shell is started in it. */
uint64_t place_open_ms(const struct place_row *row);

/* "none" if the place has no network; else "full", because Hermes does not bound it. */
const char *place_network(const struct place_row *row);

/* True only if nothing that runs there reaches the machine it is on. Elsewhere commands are
 * effects on a host (`host_exec`). NULL is a box of Hermes. */
bool place_is_box(const struct place_row *row);

/* Whether a row lets commands gain rights by setuid programs. */
bool place_table_may_gain(const struct place_table *table);
