/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The bytes of a reply, encoded once and shared: by the reply to the client, the history and
 * the writer of the store. A stranger determines the size.
 * An answer has users and keepers. While it has a user, its bytes are counted in the ledger. A
 * keeper counts the bytes in a bound of its own. Any thread may call any function. */

#include "base/ledger.h"

struct answer {
    struct purse purse;
    unsigned users, keepers;
    size_t len;
    char text[]; /* len bytes, then a NUL */
};

/* Returns an answer with room for len bytes, which the caller fills in. The caller is its first
 * user. With a NULL ledger the bytes are not counted. Returns NULL when the ledger refuses or
 * memory is short. If the ledger refuses, `held` (or NULL) is closed, see
 * purse_take_or_close(). */
struct answer *answer_new(struct ledger *ledger, int owner, size_t len, struct purse *held);

/* Makes an answer from a short text of Hermes. Its bytes are not counted. The caller is its
 * first user. */
struct answer *answer_of_text(const char *text);

/* Adds a user. If the answer had no user left, its bytes are counted again; returns false when
 * the ledger refuses that. */
bool answer_use(struct answer *answer);
void answer_release(struct answer *answer); /* accepts NULL */

/* Adds a keeper and returns the answer. */
struct answer *answer_keep(struct answer *answer);
void answer_drop(struct answer *answer); /* accepts NULL */
