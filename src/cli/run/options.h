/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The command line of `hermes run`. The program `hermes` reads it to run on this host, and
 * hermes-session reads it to run on a server. */

#include "base/strv.h"
#include "cli/options.h"
#include "lang/limits.h"

struct network_policy;

enum { RUN_SHARES_MAX = 8 };

struct run_args {
    const char *file; /* "-": stdin */
    const char *language;
    const char *entry;
    const char *image;
    bool install;
    const char *out_dir;
    const char *url; /* server to run on; with unix_path NULL too, this host */
    const char *unix_path;
    struct strv files; /* values of -f */
    struct strv env;
    struct strv args;
    struct strv compile_args;
    struct strv collect;
    /* Values of --ro and --rw, in their order: a later directory may lie in an earlier one. */
    struct run_share {
        const char *dir;
        bool writable;
    } shares[RUN_SHARES_MAX];
    size_t share_count;
    struct run_limits limits;
    struct network_policy *network; /* NULL: none */
    struct strv secrets;
    unsigned min_level; /* enum spawn_level; 0: not named */
    bool json;
    bool base64;
    bool no_cache;
};

extern const struct option_table run_options;

/* Fills in *ret, which is zeroed, from the command line and $HERMES_URL. Ends the program when
 * the command line is wrong. */
void run_options_parse(struct run_args *ret, int argc, char **argv);
void run_args_done(struct run_args *args);
