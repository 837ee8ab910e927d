"""Communicators: one `Group` per rank, whatever carries the messages."""

from lockstep.engine.groups.base import ANY, Group, GroupAborted, GroupError, GroupTimeout, allgather_object

__all__ = ["ANY", "Group", "GroupAborted", "GroupError", "GroupTimeout", "allgather_object"]
