/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads and checks one runtime.json and looks for its toolchain on this host. */

#include "base/err.h"
#include "lang/runtime.h"

/* The toolchain that another process found on the host (runtime_pack()). */
struct runtime_found {
    bool available;
    uint32_t candidate;
    const char *home; /* "" for none */
};

/* Reads the text (len bytes) of dir/runtime.json, where ~ stands for `home` (or NULL). Looks
 * for the toolchain on this host, unless `found` is given. *ret owns everything in it. */
int runtime_file_read(const char *dir, const char *home, const char *text, size_t len,
    const struct runtime_found *found, struct runtime *ret, struct err *err);
void runtime_done(struct runtime *rt);

/* Makes a runtime unavailable of which the host lacks a part. */
void runtime_check_parts(struct runtime *rt);
