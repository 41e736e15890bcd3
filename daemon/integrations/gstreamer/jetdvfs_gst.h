/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a GStreamer or DeepStream pipeline, reported for a lease: two pad probes around the element that infers.
 *
 *     jetdvfs_gst_watch watch;
 *     jetdvfs_gst_start(&watch, gst_bin_get_by_name(GST_BIN(pipeline), "infer"), &daemon);
 *     ...
 *     jetdvfs_gst_stop(&watch);
 *
 * A frame's latency is the time between its buffer's way into the element and its way out. Buffers are known by their presentation
 * time; those without one are not reported. The probes never wait. They run on the pipeline's threads: while the watch stands, no other
 * thread may use the client.
 */
#ifndef JETDVFS_GST_H
#define JETDVFS_GST_H

#include <gst/gst.h>
#include <jetdvfs.h>

#define JETDVFS_GST_MOST 256 /* buffers on their way through the element; older ones were dropped by it */

typedef struct {
    jetdvfs_client *client;
    GMutex lock;
    GstPad *pads[2];
    gulong probes[2];
    unsigned next;
    unsigned long frames; /* that went through */
    GstClockTime stamps[JETDVFS_GST_MOST];
    uint64_t entered_ns[JETDVFS_GST_MOST];
} jetdvfs_gst_watch;

static inline GstPadProbeReturn jetdvfs_gst_enters_(GstPad *pad, GstPadProbeInfo *info, gpointer data) {
    jetdvfs_gst_watch *watch = (jetdvfs_gst_watch *)data;
    (void)pad;
    g_mutex_lock(&watch->lock);
    watch->stamps[watch->next] = GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info));
    watch->entered_ns[watch->next] = jetdvfs_now_ns_();
    watch->next = (watch->next + 1) % JETDVFS_GST_MOST;
    g_mutex_unlock(&watch->lock);
    return GST_PAD_PROBE_OK;
}

static inline GstPadProbeReturn jetdvfs_gst_leaves_(GstPad *pad, GstPadProbeInfo *info, gpointer data) {
    jetdvfs_gst_watch *watch = (jetdvfs_gst_watch *)data;
    uint64_t now_ns = jetdvfs_now_ns_();
    GstClockTime stamp = GST_BUFFER_PTS(GST_PAD_PROBE_INFO_BUFFER(info));
    unsigned back, at;
    (void)pad;
    if (!GST_CLOCK_TIME_IS_VALID(stamp)) return GST_PAD_PROBE_OK;
    g_mutex_lock(&watch->lock);
    for (back = 1; back <= JETDVFS_GST_MOST; back++) {
        at = (watch->next + JETDVFS_GST_MOST - back) % JETDVFS_GST_MOST;
        if (watch->stamps[at] != stamp) continue;
        watch->stamps[at] = GST_CLOCK_TIME_NONE;
        watch->frames++;
        jetdvfs_report(watch->client, (double)(now_ns - watch->entered_ns[at]) * 1e-6);
        break;
    }
    g_mutex_unlock(&watch->lock);
    return GST_PAD_PROBE_OK;
}

/* Report every frame that goes through an element, such as nvinfer; FALSE where there is none, or it has no pads "sink" and "src". */
static inline gboolean jetdvfs_gst_start(jetdvfs_gst_watch *watch, GstElement *element, jetdvfs_client *client) {
    static const GstPadProbeCallback probes[2] = {jetdvfs_gst_enters_, jetdvfs_gst_leaves_};
    int which;
    memset(watch, 0, sizeof *watch);
    memset(watch->stamps, 0xff, sizeof watch->stamps); /* GST_CLOCK_TIME_NONE */
    watch->client = client;
    g_mutex_init(&watch->lock);
    if (!element) return FALSE; /* gst_bin_get_by_name found none */
    watch->pads[0] = gst_element_get_static_pad(element, "sink");
    watch->pads[1] = gst_element_get_static_pad(element, "src");
    for (which = 0; which < 2 && watch->pads[0] && watch->pads[1]; which++)
        watch->probes[which] = gst_pad_add_probe(watch->pads[which], GST_PAD_PROBE_TYPE_BUFFER, probes[which], watch, NULL);
    return which == 2;
}

/* Report no more frames. */
static inline void jetdvfs_gst_stop(jetdvfs_gst_watch *watch) {
    int which;
    for (which = 0; which < 2; which++) {
        if (watch->probes[which]) gst_pad_remove_probe(watch->pads[which], watch->probes[which]);
        if (watch->pads[which]) gst_object_unref(watch->pads[which]);
    }
    g_mutex_clear(&watch->lock);
}

#endif
