/* SPDX-License-Identifier: Apache-2.0 */

/* Listeners for changes of lists and resources. A listener gets the changes of its own key
 * only, and only of the kinds that it asked for. */

#include "mcp/internal.h"

#include "base/str.h"

#include <errno.h>
#include <stdio.h>

int mcp_listen(struct mcp *mcp, struct mcp_listener *listener)
{
    unsigned count = 0;
    (void)pthread_mutex_lock(&mcp->lock);
    for (const struct mcp_listener *l = mcp->listeners; l; l = l->next)
        count += l->owner == listener->owner;
    bool is_full = count >= MCP_LISTENERS_OF_KEY || mcp->is_stopping;
    if (!is_full) {
        listener->next = mcp->listeners;
        mcp->listeners = listener;
    }
    (void)pthread_mutex_unlock(&mcp->lock);
    return is_full ? -EBUSY : 0;
}

void mcp_unlisten(struct mcp *mcp, struct mcp_listener *listener)
{
    (void)pthread_mutex_lock(&mcp->lock);
    struct mcp_listener **link = &mcp->listeners;
    while (*link && *link != listener)
        link = &(*link)->next;
    if (*link)
        *link = listener->next;
    (void)pthread_mutex_unlock(&mcp->lock);
}

static bool wants(const struct mcp_listener *l, const char *kind, const char *uri)
{
    if (l->is_greeted && !*l->is_greeted)
        return false;
    if (uri)
        return json_object_get(l->uris, uri);
    return (str_eq(kind, "tools") && l->tools) || (str_eq(kind, "prompts") && l->prompts) ||
           (str_eq(kind, "resources") && l->resources);
}

void mcp_changed(struct mcp *mcp, const struct mcp_surface *surface, int owner,
    const char *kind, const char *uri)
{
    char method[64] = "notifications/resources/updated";
    if (!uri)
        (void)snprintf(method, sizeof(method), "notifications/%s/list_changed", kind);
    (void)pthread_mutex_lock(&mcp->lock);
    for (const struct mcp_listener *l = mcp->listeners; l; l = l->next) {
        if (l->surface != surface || (owner != MCP_ALL_OWNERS && l->owner != owner) ||
            !wants(l, kind, uri))
            continue;
        json_t *params = json_object();
        if (uri)
            (void)json_object_set_new(params, "uri", json_string(uri));
        if (l->id)
            (void)json_object_set_new(
                params, "_meta", json_pack("{s:O}", MCP_META "subscriptionId", l->id));
        json_t *message = mcp_notification(method, params);
        l->send(l->context, message);
        json_decref(message);
    }
    (void)pthread_mutex_unlock(&mcp->lock);
}
