/* SPDX-License-Identifier: Apache-2.0 */

/* See answer.h. The answer is freed when its last user and its last keeper are gone. */

#include "base/answer.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* One lock for all answers: each call holds it for a few instructions only. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct answer *answer_new(struct ledger *ledger, int owner, size_t len, struct purse *held)
{
    struct purse purse;
    size_t size = sizeof(struct answer) + len + 1;
    purse_open(&purse, ledger, owner);
    if (!purse_take_or_close(&purse, size, held))
        return NULL;
    struct answer *a = malloc(size);
    if (!a) {
        purse_close(&purse);
        return NULL;
    }
    *a = (struct answer){.purse = purse, .users = 1, .len = len};
    a->text[len] = '\0';
    return a;
}

struct answer *answer_of_text(const char *text)
{
    size_t len = strlen(text);
    struct answer *a = xcalloc(1, sizeof(*a) + len + 1);
    a->users = 1;
    a->len = len;
    memcpy(a->text, text, len);
    return a;
}

bool answer_use(struct answer *answer)
{
    (void)pthread_mutex_lock(&lock);
    bool fits = answer->users || purse_take(&answer->purse, sizeof(*answer) + answer->len + 1);
    answer->users += fits;
    (void)pthread_mutex_unlock(&lock);
    return fits;
}

/* Removes one user or keeper. */
static void leave(struct answer *answer, unsigned *count)
{
    (void)pthread_mutex_lock(&lock);
    (*count)--;
    bool is_last = !answer->users && !answer->keepers;
    if (!answer->users)
        purse_close(&answer->purse);
    (void)pthread_mutex_unlock(&lock);
    if (is_last)
        free(answer);
}

void answer_release(struct answer *answer)
{
    if (answer)
        leave(answer, &answer->users);
}

struct answer *answer_keep(struct answer *answer)
{
    (void)pthread_mutex_lock(&lock);
    answer->keepers++;
    (void)pthread_mutex_unlock(&lock);
    return answer;
}

void answer_drop(struct answer *answer)
{
    if (answer)
        leave(answer, &answer->keepers);
}
