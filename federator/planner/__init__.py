"""Where publications should flow when links are narrow: the publish/subscribe network design problem.

Pure: no clock, socket, file or unseeded random number. Needs the extra ``planner``; importing this
package alone does not. Source: docs/planner.md.
"""
