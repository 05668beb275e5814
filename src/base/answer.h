/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A reply's bytes, encoded once and shared by whoever needs them: the client's reply, the
 * history, the writer of the store. Its size is a stranger's. A user's bytes are counted in the
 * ledger for as long as there is one; a keeper counts them in a bound of its own. Any thread
 * may call any function. */

#include "base/ledger.h"

struct answer {
    struct purse purse;
    unsigned users, keepers;
    size_t len;
    char text[]; /* with a NUL past the end */
};

/* Room for len bytes, which the caller fills in; the caller is its user. NULL when the ledger
 * (or NULL: nobody counts) refuses, or there is no memory. */
struct answer *answer_new(struct ledger *ledger, int owner, size_t len);

/* A short text of our own, which nobody counts; the caller is its user. */
struct answer *answer_of_text(const char *text);

/* One more user; false when nobody counted the bytes any more and the ledger refuses. */
bool answer_use(struct answer *answer);
void answer_release(struct answer *answer); /* accepts NULL */

/* One more keeper; returns the answer. */
struct answer *answer_keep(struct answer *answer);
void answer_drop(struct answer *answer); /* accepts NULL */
