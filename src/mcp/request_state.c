/* SPDX-License-Identifier: Apache-2.0 */

/* The requestState of the stateless wire (mcp.h). It travels through the client, so it is
 * authenticated: HMAC-SHA256 with a key of this process over all that it is bound to. What
 * binds it is not in the text: the server knows the caller, the method, the tool and the
 * arguments of the retry, and computes the same again. Each state has a row here until it comes
 * back: so a state can be used once. */

#include "mcp/internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "state/state.h"

#include <errno.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LIFETIME_S = 600, TEXT_MAX = 512 };

#define STATE_FORMAT "1.%llu.%llx.%lld.%u.%s."

static void add(struct hmac_sha256_ctx *hmac, const char *text)
{
    size_t len = text ? strlen(text) : 0;
    /* Each part with its length: parts cannot run into each other. */
    uint64_t size = len;
    hmac_sha256_update(hmac, sizeof(size), (const uint8_t *)&size);
    hmac_sha256_update(hmac, len, (const uint8_t *)text);
}

/* The MAC of the readable part, for this call. */
static void seal(const struct mcp_call *call, const char *head, uint8_t ret[SHA256_DIGEST_SIZE])
{
    struct hmac_sha256_ctx hmac;
    const struct mcp_message *m = &call->message;
    const json_t *arguments = json_object_get(m->params, "arguments");
    /* No arguments are the same as {}. */
    cleanup_free char *text =
        arguments ? json_dumps(arguments, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY)
                  : xstrdup("{}");
    char owner[KEY_NAME_MAX + 24];
    (void)snprintf(owner, sizeof(owner), "%d %s", call->owner,
        state_owner_name(call->mcp->state, call->owner));
    hmac_sha256_set_key(&hmac, sizeof(call->mcp->secret), call->mcp->secret);
    add(&hmac, head);
    add(&hmac, owner);
    add(&hmac, call->surface->name);
    add(&hmac, m->method);
    add(&hmac, mcp_text(m->params, "name", TEXT_MAX));
    add(&hmac, mcp_text(m->params, "uri", TEXT_MAX));
    add(&hmac, text);
    hmac_sha256_digest(&hmac, SHA256_DIGEST_SIZE, ret);
}

/* A free row, or the oldest one of the key if it has its share, else the oldest of all. */
static struct mcp_state_row *row_for(struct mcp *mcp, int owner)
{
    struct mcp_state_row *oldest = NULL;
    struct mcp_state_row *own = NULL;
    unsigned count = 0;
    for (size_t i = 0; i < MCP_STATES_MAX; i++) {
        struct mcp_state_row *row = &mcp->states[i];
        if (!oldest || row->number < oldest->number)
            oldest = row;
        if (!row->number || row->owner != owner)
            continue;
        count++;
        if (!own || row->number < own->number)
            own = row;
    }
    return count >= MCP_STATES_OF_KEY ? own : oldest;
}

char *mcp_state_make(struct mcp_call *call, const char *what, unsigned round)
{
    struct mcp *mcp = call->mcp;
    uint8_t mac[SHA256_DIGEST_SIZE];
    char text[2 * sizeof(mac) + 1];
    struct mcp_state_row row = {.owner = call->owner, .expires_s = time(NULL) + LIFETIME_S};
    id_random(&row.nonce, sizeof(row.nonce));
    (void)pthread_mutex_lock(&mcp->lock);
    row.number = ++mcp->state_count;
    *row_for(mcp, call->owner) = row;
    (void)pthread_mutex_unlock(&mcp->lock);
    cleanup_free char *head = xasprintf(STATE_FORMAT, (unsigned long long)row.number,
        (unsigned long long)row.nonce, (long long)row.expires_s, round, what);
    seal(call, head, mac);
    str_hex(mac, sizeof(mac), text);
    return xasprintf("%s%s", head, text);
}

/* Forgets the row of a state that came back. False when it has none: it is spent, or was never
 * given out. */
static bool spend(struct mcp *mcp, uint64_t number, uint64_t nonce, int owner)
{
    bool is_known = false;
    (void)pthread_mutex_lock(&mcp->lock);
    for (size_t i = 0; i < MCP_STATES_MAX; i++) {
        struct mcp_state_row *row = &mcp->states[i];
        if (row->number != number || row->nonce != nonce || row->owner != owner || !number)
            continue;
        is_known = row->expires_s >= time(NULL);
        *row = (struct mcp_state_row){0};
    }
    (void)pthread_mutex_unlock(&mcp->lock);
    return is_known;
}

static int refuse(struct mcp_call *call, const char *why)
{
    return mcp_fail(
        &call->error, MCP_PARAMS, "the requestState %s; make the call again without it", why);
}

int mcp_state_take(struct mcp_call *call, char ret_what[ID_MAX], unsigned *ret_round)
{
    uint8_t mac[SHA256_DIGEST_SIZE];
    char expected[2 * sizeof(mac) + 1];
    char what[ID_MAX];
    unsigned long long number;
    unsigned long long nonce;
    long long expires;
    unsigned round;
    const json_t *value = json_object_get(call->message.params, "requestState");
    const char *text = mcp_text(call->message.params, "requestState", TEXT_MAX);
    if (!value)
        return 0;
    const char *dot = text ? strrchr(text, '.') : NULL;
    if (!dot || strlen(dot + 1) != sizeof(expected) - 1)
        return refuse(call, "is not one of ours");
    cleanup_free char *head = xstrndup(text, (size_t)(dot + 1 - text));
    seal(call, head, mac);
    str_hex(mac, sizeof(mac), expected);
    if (!memeql_sec(expected, dot + 1, sizeof(expected) - 1) ||
        /* NOLINTNEXTLINE(cert-err34-c): numbers of our own, under our seal */
        sscanf(head, "1.%llu.%llx.%lld.%u.%39[^.].", &number, &nonce, &expires, &round, what) !=
            5)
        return refuse(call, "does not belong to this call");
    if (!spend(call->mcp, number, nonce, call->owner))
        return refuse(call, "was used already, or is too old");
    (void)snprintf(ret_what, ID_MAX, "%s", what);
    *ret_round = round;
    return 1;
}
