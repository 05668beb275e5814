/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The keys of the options of `hermes exec` and `hermes backends`. */

#include "cli/options.h"

enum {
    BACKEND_URL = 256,
    BACKEND_UNIX,
    BACKEND_JSON,
    BACKEND_NAME,
    BACKEND_STDIN,
    BACKEND_TIMEOUT,
    BACKEND_ENV,
    BACKEND_OWN,
    BACKEND_YES,
    BACKEND_RULES,
};

extern const struct option_table exec_options;
extern const struct option_table backends_options;
