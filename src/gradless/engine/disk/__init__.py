"""Runs on disk, in the files of `gradless.records`.

recording: a session that writes itself down, and goes on from there.
stored: what is looked at before anything on disk is believed; replay: the net at any step, from the seed and the log.
"""
