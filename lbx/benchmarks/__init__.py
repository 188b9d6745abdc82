"""The benchmark families that lbx knows."""
